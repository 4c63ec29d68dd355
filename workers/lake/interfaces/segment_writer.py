"""Writing the rows of a batch to a branch: the Protocol of the two segment writers.

A writer does not commit by itself. The writer yields steps and ``BranchWriter`` runs the steps,
because only ``BranchWriter`` knows the last commit of the batch.

Trace: segments [append 5] [update 3, append 2] of a table whose files this process writes. The
first segment is a ``Commit``. The updates keep values that only the table has, so the file writer
yields ``Barrier``: ``BranchWriter`` now makes the first commit, without the table's position. The
file writer looks the three rows up and yields a second ``Commit``. No step follows, so the second
commit carries the position.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from workers.lake.copy_plan import CopyPlan
from workers.lake.copy_task import CopyTask
from workers.lake.effects import Counts, Merge
from workers.lake.segment import Segment

Properties = Mapping[str, str]
"""Properties of a snapshot's summary."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A snapshot still to be made. ``run`` makes the snapshot, with the given properties.

    ``BranchWriter`` holds a commit back until the next step is known, because only the last commit
    of a batch may carry the table's position. ``carries_properties`` is false for TRUNCATE:
    Iceberg commits a TRUNCATE without properties.

    ``work`` is what the commit does, each for another of the ``sources``, and ``together`` makes
    one commit of the work of several. None for a commit that stays alone.
    """

    run: Callable[[Properties], None]
    carries_properties: bool = True
    sources: frozenset[str] = frozenset()
    work: tuple[Any, ...] = ()
    together: Callable[[tuple[Any, ...]], Commit] | None = None

    def joined(self, later: Commit) -> Commit | None:
        """One commit in place of both, or None: rows of one source are changed in order."""
        if self.together is None or self.together != later.together or self.sources & later.sources:
            return None
        return self.together((*self.work, *later.work))


@dataclass(frozen=True, slots=True)
class Barrier:
    """All commits yielded so far must be on the branch before the writer is asked to go on.

    Commits that are known to change rows of other sources than ``source`` alone need not be.
    """

    source: str = ""

    def needs(self, held_back: Commit) -> bool:
        """Must the commit be on the branch?"""
        return not held_back.sources or self.source in held_back.sources


@dataclass(frozen=True, slots=True)
class NewRows:
    """The new rows of a segment whose changes the writer has dealt with already.

    ``BranchWriter`` chooses a writer for the new rows as for any segment: even if Spark has to make
    the changes, this process may be able to write the new rows.
    """

    segment: Segment


Step = Commit | Barrier | NewRows


class Declined(Exception):  # noqa: N818 - no error: the next writer is asked
    """The writer has looked at the branch and cannot apply the segment; nothing was committed."""


@dataclass(slots=True)
class CommitNames:
    """Names for the commits of a batch, to find the snapshots by afterwards."""

    _batch: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    _count: int = 0

    def next(self) -> str:
        """A new name."""
        self._count += 1
        return f"{self._batch}-{self._count}"


@dataclass(frozen=True, slots=True)
class WriterEffect:
    """The work of a writer in a batch so far.

    ``counts`` are known already. The counts of the ``merges`` are read later from the snapshots of
    those commits, for several tables in a single query.
    """

    counts: Counts
    merges: tuple[Merge, ...] = ()


@dataclass(frozen=True, slots=True)
class CopyRun:
    """The Spark tasks of a copy.

    ``numbers`` is a DataFrame of task numbers with a partition for every task. ``task`` turns task
    numbers into batches of copied rows. ``reported`` reports progress while the block runs.
    """

    numbers: Any
    task: CopyTask
    reported: Callable[[], AbstractContextManager[None]]


class SegmentWriter(Protocol):
    """Applies segments of a batch to a branch of a table.

    Made for a single batch and used by a single thread. Two implementations:

    * ``FileSegmentWriter`` writes data files and delete files and commits the files by name
      (``FileCommits``). Rows are looked up in the table's files, without a Spark job.
    * ``MergeSegmentWriter`` has Spark do the work: MERGE of matched rows, then a plain append.
      Spark accepts every segment.

    Both writers change the same rows, report the same counts and raise the same errors. The
    contract tests run on both.
    """

    def accepts(self, segment: Segment) -> bool:
        """Can the writer apply the whole segment, as far as known before reading the branch?

        ``FileSegmentWriter`` says no for generated columns, for defaults of new rows, for too many
        changes, for key types without a comparison in this process, and for changes of rows if the
        rows of other writers must be counted.
        """

    def steps(self, segment: Segment) -> Iterator[Step]:
        """The steps that apply the segment, in order.

        A writer that has to read the branch yields ``Barrier`` first, and may raise ``Declined``
        directly behind the barrier: before the first ``Commit``, never after.
        """

    def commit_empty(self, properties: Properties) -> None:
        """Add a snapshot without rows to the branch, for the sake of the properties."""

    def accepts_copy(self, plan: CopyPlan) -> bool:
        """Can the writer write the rows of the copy?"""

    def copy(self, plan: CopyPlan, run: CopyRun, properties: Properties) -> int:
        """Append the rows of a copy in a single commit. Returns the number of rows.

        ``properties`` hold a name for the commit (``OPERATION``), to find the snapshot by.
        """

    def effect(self, source: str = "") -> WriterEffect:
        """The work of the writer so far, for a source of a shared table."""
