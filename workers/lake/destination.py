"""What a lake must be able to do: the seam between the workers and a table format.

The apply and the table-sync worker see the lake only through this module. Everything a worker
writes goes to a *branch* that only its own generation uses, and becomes visible to readers by
``publish`` (a fast-forward of ``main``), never in any other way: that is what makes a batch
atomic per table and what fences a worker that died with a call in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol

import pyarrow as pa

from catalog.pg_lsn import LSN
from workers.lake.copy_plan import CopyPlan
from workers.lake.effects import Counts, Effect, ExistingKeys, FileSizes, Orphans
from workers.lake.segment import Generated, RowsOf, Segment
from workers.lake.staged_rows import Staged
from workers.lake.table import BRANCH_PREFIX, LakeColumn, LakeIdent, LakeTable, Stamp

"""Every branch of ours starts so; others are somebody else's and stay."""
"""The owner of a lake table that several sources write to."""
"""In a shared lake table: which source a row came from, NULL for rows that none of ours wrote."""
"""Columns that the lake table generates, each with its expression: Spark's SQL over the others."""
"""What a ``KeyLookup`` is told when none of its keys is there."""


class Destination(Protocol):
    """The lake as the workers see it. Every call may raise ``ReplicationError``."""

    def table(self, ident: LakeIdent) -> LakeTable | None:
        """What ``main`` holds now, never cached; None when there is no such table."""

    def create_table(
        self,
        ident: LakeIdent,
        columns: Sequence[LakeColumn],
        *,
        owner: str,
        relid: int,
        stamp: Stamp,
    ) -> LakeTable:
        """Create the namespace and the table with an empty stamped snapshot on ``main``.

        A stamp with a source is left out: what is committed to a shared table's ``main`` itself
        would hide the positions that another source has published meanwhile.
        """

    def generated_columns(
        self, ident: LakeIdent, columns: Sequence[LakeColumn], generated: Generated
    ) -> tuple[LakeColumn, ...]:
        """What is generated over ``columns`` of a table that need not exist, with its types.

        Raises what PostgreSQL raises for a generation expression, or for one that uses a column
        which is not there.
        """

    def adopt_table(
        self, ident: LakeIdent, *, owner: str, stamp: Stamp, former_owners: Collection[str] = ()
    ) -> LakeTable:
        """Take over an existing table: set its owner, commit an empty stamped snapshot.

        As in ``create_table``, a stamp with a source is left out.
        A table that belongs to somebody else is 55006, unless that is one of ``former_owners``.
        """

    def drop_table(self, ident: LakeIdent) -> None:
        """Drop a table that was created by us and never used (undo of a failed CREATE)."""

    def fence(self, ident: LakeIdent) -> LakeTable:
        """Commit an empty snapshot on ``main`` that carries the stamp on, so that no earlier
        branch can be published any more; then read the table."""

    def release_sessions(self, sessions: Iterable[tuple[str, str]]) -> None:
        """Close the (user_id, session_id) pairs of a dead worker for good; stops what runs."""

    def create_branch(self, ident: LakeIdent, branch: str, at: int | None = None) -> None:
        """A fresh branch at a snapshot, ``main``'s tip if none is named."""

    def drop_branches(
        self, ident: LakeIdent, *, keep: str | None = None, prefix: str = BRANCH_PREFIX
    ) -> None:
        """Drop every branch of ours on the table but ``keep``; missing is fine.

        ``prefix`` is how the names of those begin that may go.
        """

    def stage(
        self,
        batches: Iterable[pa.RecordBatch],
        schema: pa.Schema,
        rows_of: RowsOf | None = None,
        changes_of: LakeIdent | None = None,
    ) -> Staged:
        """Take rows in; small ones stay in memory, larger ones become Parquet files (0600).

        ``rows_of``: what they are, where they may become files of the table as they are.
        ``changes_of``: the table whose rows they change whole; where that is done without Spark,
        more of them stay in memory.
        """

    def discard(self, staged: Staged) -> None:
        """Remove staged files; missing is fine."""

    def write_branch(
        self,
        ident: LakeIdent,
        branch: str,
        segments: Sequence[Segment],
        stamp: Stamp,
        base: LSN | None = None,
    ) -> Effect:
        """Apply the segments in order on the branch; only the last snapshot carries ``stamp``.

        Not to be published before ``count`` has looked at it.
        ``base`` is how far the stamp's source of a shared table must be on the branch already: its
        branches do not stand, so that nobody else would notice a ``main`` that was set back.
        """

    def count(self, effects: Sequence[Effect]) -> list[Counts]:
        """What was done on each of these branches, all of it asked in one call.

        A key that more rows than one had is 23505: the branch is not to be published.
        """

    def write(
        self,
        ident: LakeIdent,
        branch: str,
        segments: Sequence[Segment],
        stamp: Stamp,
        base: LSN | None = None,
    ) -> Counts:
        """``write_branch`` and ``count`` of one table."""
        return self.count([self.write_branch(ident, branch, segments, stamp, base)])[0]

    def copy(
        self,
        ident: LakeIdent,
        branch: str,
        plan: CopyPlan,
        progress: Callable[[int, int], None],
    ) -> int:
        """Run the copy's ranges in parallel onto the branch; ``progress(done, total)`` ranges.
        Returns the number of rows copied."""

    def existing_keys(self, ident: LakeIdent, branch: str, key: Sequence[str]) -> ExistingKeys:
        """What the rows that the branch's last commit appended meet in the table before it.

        Keys are compared by value; one with a NULL in it equals none.
        """

    def repeated_keys(
        self, ident: LakeIdent, branch: str, key: Sequence[str], source: str = ""
    ) -> int:
        """How many values of a key more than one row of the branch has; no NULL is one.

        ``source``: among the rows of that source.
        """

    def overwrite_existing(
        self,
        ident: LakeIdent,
        branch: str,
        columns: Sequence[str],
        key: Sequence[str],
        generated: Generated = (),
    ) -> None:
        """The rows that ``existing_keys`` counts become what was copied, as far as ``columns`` go.

        What is generated is computed anew, every other column keeps its value, and no key is there
        twice then. The branch's tip carries no stamp afterwards.
        """

    def publish(self, ident: LakeIdent, branch: str, stamp: Stamp) -> int | None:
        """Fast-forward ``main`` to the branch, if the branch's tip carries exactly ``stamp``.

        Returns the snapshot that ``main`` shows then, None where that was not said."""

    def expire(self, ident: LakeIdent, *, retain: int, age: float = 0.0) -> int:
        """Drop old snapshots, but for the last ``retain`` of ``main``, those that are younger than
        ``age`` seconds, and the newest stamped one; how many went."""

    def compact(
        self, ident: LakeIdent, branch: str, sizes: FileSizes, *, dead_share: float | None = None
    ) -> int:
        """Write the branch's small files together, between batches; how many files went. With
        ``dead_share`` instead some of those in which that share of the rows is deleted."""

    def remove_orphans(self, ident: LakeIdent, *, owner: str, older_than: float) -> Orphans:
        """Remove the table's files that no snapshot knows and were last changed before that moment
        (Unix time). Commits nothing, so batches may go on; nothing is removed where it is not sure
        that a file is the table's, that the table is ``owner``'s, and that nobody's commit is
        waiting for the file."""

    def rollback(self, ident: LakeIdent, snapshot_id: int) -> None:
        """Set ``main`` back to a snapshot (a copy that was published but never stored as s)."""

    def close(self) -> None:
        """Release the sessions of this destination."""
