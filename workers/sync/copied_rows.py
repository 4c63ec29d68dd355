"""The rows of a copy, on the way to the branch.

A copy by Spark tasks ends with a commit. The rows of a copy through the sync worker's connection
*wait* if this process writes the files of the table: the data files are written, or the few rows
are in memory, and no snapshot has them. The commit comes when the position is known:

* before the first batch of the catch-up, with the position of the copy;
* else with the publication. Then the rows, the position of ``s`` and the move of ``main`` are a
  single commit, where three compare-and-sets would cost three metadata files, and requests.

Trace: the copy of t ends at 8 with file A. The apply worker answers c(10), and the stream brings
nothing of t. Snapshot 5 has A and the position 10; ``main`` and the branch move to 5 together. A
worker that is killed before, or whose publication is refused, leaves file A, which has the copy id
in the name: the next attempt removes the file.

What Spark has to write is committed before the worker asks for c, because the apply worker stands
still from c on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from catalog.errcodes import ReplicationError, at_fault
from catalog.pg_subscription_rel import SubscriptionRel
from workers.lake.destination import Destination
from workers.lake.segment import Segment
from workers.lake.table import LakeIdent, Stamp


@dataclass(slots=True)
class CopiedRows:
    """``number`` rows for the branch; ``waiting`` until a commit has taken the rows in.

    ``rel`` is the row of the table, which a refused value may suspend.
    """

    dest: Destination
    rel: SubscriptionRel
    branch: str
    number: int
    waiting: Segment | None = None

    @property
    def ident(self) -> LakeIdent:
        """The lake table."""
        return LakeIdent(self.rel.lake_schema, self.rel.lake_table)

    def write(self, stamp: Stamp, *, published_next: bool = False) -> None:
        """Commit the waiting rows with the position ``stamp``, else the position alone.

        ``published_next``: the next step publishes the branch, and may make the commit.
        """
        rows = [] if self.waiting is None else [self.waiting]
        may_hold = published_next and bool(rows)
        with at_fault(self.rel):
            self.dest.write(self.ident, self.branch, rows, stamp, may_hold=may_hold)
        self.discard()

    def write_before_batch(self, stamp: Stamp) -> None:
        """Commit waiting rows, because a batch of the catch-up goes on top of the rows."""
        if self.waiting is not None:
            self.write(stamp)

    def discard(self) -> None:
        """Remove what is staged; files that a commit was given stay."""
        if self.waiting is not None and self.waiting.append is not None:
            self.dest.discard(self.waiting.append)
        self.waiting = None

    @contextmanager
    def discarded_on_error(self) -> Iterator[None]:
        """Remove what is staged if the block raises; the next attempt removes what stays."""
        try:
            yield
        except BaseException:
            with suppress(ReplicationError):
                self.discard()
            raise
