"""The rows of a copy, on the way to the branch.

A copy by Spark tasks ends with a commit. The rows of a copy through the sync worker's connection
*wait*: the data files are written, or the rows are staged, and no snapshot has them. The commit
comes when the position is known:

* before the first batch of the catch-up, with the position of the copy;
* else with the publication. Then the rows, the position of ``s`` and the move of ``main`` are a
  single commit, where three compare-and-sets would cost three metadata files, and requests.

Trace: the copy of t ends at 8 with file A. The apply worker answers c(10), and the stream brings
nothing of t. Snapshot 5 has A and the position 10; ``main`` and the branch move to 5 together. A
worker that is killed before leaves file A, which has the copy id in the name: the next attempt
removes the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from workers.lake.destination import Destination
from workers.lake.segment import Segment, SourcePart
from workers.lake.table import LakeIdent, Stamp


@dataclass(slots=True)
class CopiedRows:
    """``number`` rows for the branch; ``waiting`` until a commit has taken the rows in."""

    dest: Destination
    ident: LakeIdent
    branch: str
    number: int
    waiting: Segment | None = None

    def write(self, stamp: Stamp, *, published_next: bool = False) -> None:
        """Commit the waiting rows with the position ``stamp``, else the position alone.

        ``published_next``: the next step publishes the branch, and may make the commit.
        """
        rows = [] if self.waiting is None else [self.waiting]
        part = SourcePart(rows, stamp)
        effects = self.dest.write_sources(
            self.ident, self.branch, [part], may_hold=published_next and bool(rows)
        )
        self.dest.count(effects)
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
        """Remove what is staged if the block raises."""
        try:
            yield
        except BaseException:
            self.discard()
            raise
