"""Store published batches in a thread, while the worker goes on: ``synchronous_commit = off``.

With every other value the worker waits, after each batch, until the files of the batch are on the
disk. With ``off`` a thread waits in the worker's place. The worker publishes the next batches, and
the thread stores and confirms what is on the disk, in the order of the batches::

    worker      publish 100   publish 200   publish 300   publish 400
    thread                    sync 100 ─────────────────▶ sync 200 and 300 together ─────▶
    origin                                            100                              300
    confirmed                                          100                              300

Rules:

- No position is stored or confirmed before all files that the position rests on are on the disk.
- A group of batches is synchronised once. The positions of the group are stored in one catalog
  transaction, so the stored origin never names a batch without the batches before.
- At most ``UNSTORED_BATCHES`` wait. A waiting batch holds names and positions, and no row.
- An error of the thread ends the worker, as the error would without the thread. The worker meets
  the error at its next turn, or when the worker waits for the thread.

A killed worker leaves published batches behind the stored origin. The list ``in_flight`` has one
row for a table and not one for a batch. One row suffices: a successor fences the table, puts the
table's files onto the disk and reads the position from the lake, and the position covers every
batch that the table holds. So the list must have all tables of all waiting batches. A stored batch
therefore takes only those tables off the list that no later batch has put there again
(``CatalogStore.clear_in_flight``).

Trace of a power cut: origin 100, batches 200 and 300 are published, in_flight {a 300, b 200}. After
the cut a is set back to 100, and b, which the kernel has written by itself, is at 200. The
successor fences both, receives everything behind 100 again, applies 200 and 300 to a, and skips 200
in b.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from catalog.pg_lsn import LSN
from config.limits import UNSTORED_BATCHES
from workers.lake.table import LakeIdent


@dataclass(frozen=True, slots=True)
class PublishedBatch:
    """What has to be stored of a published batch.

    ``position`` is the lake commit that completed the batch. ``store_also`` stores more in the
    catalog transaction of the positions.
    """

    relids: Sequence[int]
    idents: Sequence[LakeIdent]
    end_lsn: LSN
    position: str
    store_also: Callable[[], None]


@dataclass(slots=True)
class _Waiting:
    """A batch that waits for the disk, and the calls to make once the batch is stored."""

    batch: PublishedBatch
    then: deque[Callable[[], None]] = field(default_factory=deque)


class BackgroundSync:
    """Stores batches in a thread. The thread begins with the first batch.

    A single thread calls the methods. ``store_batches`` puts the files of the batches onto the disk
    and stores the positions. ``wake`` is called when batches are stored, and after an error.
    """

    def __init__(
        self, store_batches: Callable[[Sequence[PublishedBatch]], None], wake: Callable[[], None]
    ) -> None:
        self._store_batches = store_batches
        self._wake = wake
        self._changed = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._error: BaseException | None = None
        self._ending = False
        self._thread: threading.Thread | None = None

    def raise_if_failed(self) -> None:
        """Raise the error that ended the thread."""
        if self._error is not None:
            raise self._error

    def wait_for_room(self) -> None:
        """Wait until one more batch may be published."""
        self._wait(lambda: len(self._waiting) < UNSTORED_BATCHES)

    def wait_until_stored(self) -> None:
        """Wait until every batch is stored, and the calls behind the batches are made."""
        self._wait(lambda: not self._waiting)

    def put(self, batch: PublishedBatch) -> None:
        """Let the thread store a published batch behind the batches before."""
        with self._changed:
            self._waiting.append(_Waiting(batch))
            self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="sync", daemon=True)
            self._thread.start()

    def when_stored(self, then: Callable[[], None]) -> None:
        """Call ``then`` once every batch so far is stored: now, or later in the thread."""
        with self._changed:
            if self._waiting:
                self._waiting[-1].then.append(then)
                return
        then()

    def end(self) -> None:
        """Store what waits and end the thread; an error is left to ``raise_if_failed``."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._ending = False

    def _wait(self, is_over: Callable[[], bool]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._error is not None or is_over())
        self.raise_if_failed()

    # -- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while group := self._next_group():
                self._store_batches([each.batch for each in group])
                for each in group:
                    self._finish(each)
                self._wake()
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()
            self._wake()

    def _next_group(self) -> list[_Waiting]:
        """All batches that wait; empty at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ending)
            return list(self._waiting)

    def _finish(self, first: _Waiting) -> None:
        """Make the calls behind the first batch, then make room.

        The batch waits until the last call is made: a call that comes meanwhile is not overtaken.
        """
        while True:
            with self._changed:
                if not first.then:
                    self._waiting.popleft()
                    self._changed.notify_all()
                    return
                then = first.then.popleft()
            then()
