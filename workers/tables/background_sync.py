"""Batches that are published and not yet on the disk: ``synchronous_commit = off``.

The worker goes on with the next batch while a thread puts the last ones onto the disk. The position
of a batch is stored, and confirmed to the publisher, only afterwards, as in PostgreSQL: there the
walwriter flushes commits that nobody waits for. All batches that wait when a synchronisation begins
share the synchronisation.

Trace: batch 1 is published and given to the thread. Batches 2 and 3 are published meanwhile. The
thread is done with 1 and takes 2 and 3 together. The worker stores position 1 at the next batch
boundary, and 3 at a later one. If the worker dies before, its successor finds the tables of 2 and 3
in flight, fences them, makes them durable, and skips what they have already.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field

from catalog.pg_lsn import LSN
from workers.lake.table import LakeIdent

MakeDurable = Callable[[Collection[LakeIdent]], Mapping[LakeIdent, str]]


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """A published batch; ``store`` stores its position, in a transaction of the catalog."""

    relids: frozenset[int]
    idents: Collection[LakeIdent]
    end_lsn: LSN
    store: Callable[[], None]


@dataclass(slots=True)
class SyncedBatches:
    """Batches that are on the disk, oldest first, and the tables' metadata files."""

    batches: list[OpenBatch] = field(default_factory=list)
    durable: dict[LakeIdent, str] = field(default_factory=dict)


class BackgroundSync:
    """The open batches of a worker. A single thread adds and takes; ``wake`` is called by another.

    A disk that refuses is the error of the next ``take``.
    """

    def __init__(
        self, make_durable: MakeDurable, thread: Executor, wake: Callable[[], None]
    ) -> None:
        self._make_durable = make_durable
        self._thread = thread
        self._wake = wake
        self._changed = threading.Condition()
        self._waiting: list[OpenBatch] = []
        self._running: list[OpenBatch] = []
        self._synced = SyncedBatches()
        self._error: BaseException | None = None

    def add(self, batch: OpenBatch) -> None:
        """Give a published batch to the thread."""
        with self._changed:
            self._waiting.append(batch)
            if not self._running:
                self._begin()

    def take(self, *, wait: bool = False) -> SyncedBatches:
        """The batches that are on the disk by now; with ``wait`` all of them."""
        with self._changed:
            self._changed.wait_for(lambda: self._error or not (wait and self._running))
            if self._error is not None:
                raise self._error
            found, self._synced = self._synced, SyncedBatches()
            return found

    def open_relids(self) -> set[int]:
        """The tables of batches that are not on the disk."""
        with self._changed:
            batches = (*self._running, *self._waiting)
            return set().union(*(each.relids for each in batches))

    @property
    def is_empty(self) -> bool:
        """Are no batches waiting, running, or to be taken?"""
        with self._changed:
            return not (self._running or self._synced.batches or self._error)

    def _begin(self) -> None:
        self._running, self._waiting = self._waiting, []
        self._thread.submit(self._run)

    def _run(self) -> None:
        try:
            while self._synchronise():
                pass
        finally:
            self._wake()

    def _synchronise(self) -> bool:
        """Put the running batches onto the disk; True if more batches have come meanwhile."""
        idents = dict.fromkeys(ident for each in self._running for ident in each.idents)
        try:
            durable = self._make_durable(list(idents))
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()
            return False
        with self._changed:
            self._synced.batches += self._running
            self._synced.durable.update(durable)
            self._running, self._waiting = self._waiting, []
            self._changed.notify_all()
            more = bool(self._running)
        self._wake()
        return more
