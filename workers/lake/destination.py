"""What a lake must be able to do: the seam between the workers and a table format.

The apply and the table-sync worker see the lake only through this module. Everything a worker
writes goes to a *branch* that only its own generation uses, and becomes visible to readers by
``publish`` (a fast-forward of ``main``), never in any other way: that is what makes a batch
atomic per table and what fences a worker that died with a call in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import pyarrow as pa

from catalog.errcodes import ObjectNotInPrerequisiteState, UniqueViolation
from catalog.pg_lsn import LSN
from workers.lake.counts import Counts, Effect, LakeIdent
from workers.lake.staged import Staged

BRANCH_PREFIX: Final = "pgsub_"
"""Every branch of ours starts so; others are somebody else's and stay."""

SHARED: Final = "shared"
"""The owner of a lake table that several sources write to."""

SOURCE_COLUMN: Final = "_pgsub_source"
"""In a shared lake table: which source a row came from, NULL for rows that none of ours wrote."""


@dataclass(frozen=True, slots=True)
class LakeColumn:
    """A column as the lake has it; ``type`` decides how the publisher's text is read."""

    name: str
    type: pa.DataType
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Stamp:
    """What the last snapshot of a batch carries: whose position it is and how far it goes.

    ``origin`` is the replication origin's name, ``lsn`` the end LSN of the last transaction in
    the table, ``epoch`` the uuid inside which that LSN means something, ``floor`` the end LSN up
    to which transactions never belong to this table (the copy's consistent point). ``source`` is
    empty but in a shared table, where it says which of the sources this is the position of.
    """

    origin: str
    lsn: LSN
    epoch: str
    floor: LSN
    source: str = ""


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table as ``main`` shows it now. ``stamp`` is the newest ancestor's that carries one.

    ``sources`` are the stamps of a shared table's sources, by source. ``records`` is how many rows
    its files hold, deleted ones included: 0 says that it is empty; None, that it is not known.
    ``snapshots`` are those it keeps, of whatever ref: when each was committed, by the lake's clock
    in Unix time, in order; empty where the table was just made. ``files`` is the number of data
    files.
    ``written_by_others``: the sources that somebody else added rows beside since we have theirs;
    ``""`` stands for a table of one owner.
    """

    ident: LakeIdent
    columns: tuple[LakeColumn, ...]
    owner: str | None
    snapshot_id: int | None
    stamp: Stamp | None
    sources: Mapping[str, Stamp] = field(default_factory=dict)
    records: int | None = None
    snapshots: Sequence[float] = field(default=(), compare=False)
    files: int = 0
    written_by_others: frozenset[str] = frozenset()

    def position(self, source: str = "") -> Stamp | None:
        """The stamp of one source of a shared table, or the table's own."""
        return self.sources.get(source) if source else self.stamp


Generated = tuple[tuple[str, str], ...]
"""Columns that the lake table generates, each with its expression: Spark's SQL over the others."""


@dataclass(frozen=True, slots=True)
class RowsOf:
    """What is staged are whole rows of a table: nothing is to be computed for them.

    ``columns`` are what ``c0…`` are called there, ``source`` whose they are in a shared table.
    """

    ident: LakeIdent
    columns: tuple[str, ...]
    source: str = ""


@dataclass(frozen=True, slots=True)
class FullSegment:
    """Changes of a table matched by whole rows (REPLICA IDENTITY FULL, or no key).

    ``images`` holds the distinct old rows: ``image`` int64, ``n`` int32 (how many at most), then
    ``c0…`` in the order of ``Segment.columns``. The lake finds up to ``n`` equal rows (NULLs
    equal) on the branch and calls ``resolve`` with what it found: ``image`` int64, ``f`` string
    (``_file``), ``p`` int64 (``_pos``). ``resolve`` answers ``(positions, append)``: positions
    has ``f, p, op`` (int8, 0 = update, 1 = delete) and ``c0…``; append has ``c0…``.
    """

    images: Staged
    resolve: Callable[[pa.Table], tuple[Staged | None, Staged | None]]


# Not from arrays: making one of Python values imports pandas, a second for every command.
NO_KEY_FOUND: Final = pa.Table.from_batches([], pa.schema({"k": pa.int64()}))
"""What a ``KeyProbe`` is told when none of its keys is there."""


def nothing_found(others: int) -> pa.Table:
    """What a ``KeyProbe`` with so many other keys is told when none is there."""
    names = ["k", *(f"k{at}" for at in range(1, others + 1))]
    return pa.Table.from_batches([], pa.schema([(name, pa.int64()) for name in names]))


@dataclass(frozen=True, slots=True)
class OtherKey:
    """Values that rows are given in ``columns``: ``k`` int64, then ``b0…``, each value once."""

    columns: tuple[str, ...]
    keys: Staged


@dataclass(frozen=True, slots=True)
class KeyProbe:
    """Changes whose effect depends on which of their keys are in the table.

    ``keys`` holds each key once: ``k`` int64, then ``b0…`` in the order of ``Segment.key``. The
    lake looks for them on the branch and calls ``resolve`` with the ``k`` it found, once per row;
    the segment that ``resolve`` answers is applied instead. ``resolve`` may raise.

    With ``others`` it looks for rows that have any of the keys, and ``resolve`` gets a line for
    each: ``k``, then ``k1``, ``k2`` … for the other keys, NULL for one that is not among them.
    ``keys`` is None where the segment has no key.
    """

    keys: Staged | None
    resolve: Callable[[pa.Table], Segment]
    others: tuple[OtherKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of changes of one lake table under one layout, folded; segments apply in order.

    ``columns`` names the published columns; staged columns are ``c0…`` in that order.
    ``merge``: ``op`` int8 (0 = update, 1 = delete), ``b0…`` the base key in the order of ``key``,
    ``c0…`` the new values, and for each column named in ``unchanged`` (an unchanged out-of-line
    value somewhere in the segment) a boolean ``m<i>``, true where the table's value stays.
    ``append``: ``c0…``. The merge comes before the append; ``truncate`` before both.
    A segment with a ``probe`` has neither: its keys are looked for first.
    With a ``source`` (a shared table) only that source's rows are matched, deleted and emptied,
    and new rows are its own. ``from_branch`` appends that source's rows of another branch.
    What is ``generated`` is none of ``columns`` and is computed for each row that is written.
    """

    columns: tuple[str, ...]
    key: tuple[str, ...] = ()
    truncate: bool = False
    merge: Staged | None = None
    unchanged: tuple[str, ...] = ()
    append: Staged | None = None
    full: FullSegment | None = None
    probe: KeyProbe | None = None
    defaults: tuple[tuple[str, str], ...] = ()  # lake-only column → Spark expression
    generated: Generated = ()
    source: str = ""
    from_branch: str | None = None


@dataclass(frozen=True, slots=True)
class FileSizes:
    """Of data files, in bytes: from where on one is not ``small``, how large a ``whole`` one is,
    and how much of files with deleted rows is rewritten ``at_once``. Fewer small ones than ``few``
    are left as they are."""

    small: int = 1 << 20
    whole: int = 64 << 20
    at_once: int = 128 << 20
    few: int = 8

    @property
    def bar(self) -> int:
        """Below it a file is small: never one that came out a little smaller than whole."""
        return min(self.small, self.whole * 3 // 4)


@dataclass(frozen=True, slots=True)
class Orphans:
    """How many files were removed that no snapshot knew; ``left`` is why none was looked for."""

    files: int = 0
    left: str | None = None


@dataclass(frozen=True, slots=True)
class TakenKeys:
    """``copied`` rows of a copy have a key that the table had before; ``held`` rows had them."""

    copied: int
    held: int


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """A parallel copy under an exported snapshot; one ``COPY … TO STDOUT`` per range.

    It is CSV, or binary with ``nodes`` (``workers.columnar.binary_copy``), which read it.

    ``conninfo`` is pinned to the snapshot connection's host and holds no password; ``passfile``
    is a 0600 file on this machine. ``columns`` are the copied columns in the COPY's order.
    ``workers`` is how many ranges, and so connections, there may be at a time; None sets no limit.
    ``stamp`` is what the commit carries, None where another one follows that will.
    """

    conninfo: str
    passfile: str | None
    snapshot: str
    statements: tuple[str, ...]
    columns: tuple[LakeColumn, ...]
    on_unrepresentable: str = "error"
    relation: str = ""  # schema.table, for messages
    defaults: tuple[tuple[str, str], ...] = ()
    generated: Generated = ()
    workers: int | None = None
    source: str = ""
    nodes: tuple[Sequence[Sequence[int]], Sequence[int]] | None = None
    stamp: Stamp | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """Who writes: the names a fence needs. ``generation`` is never used twice."""

    subid: int
    generation: int
    relid: int = 0  # 0 = apply worker
    branch: str = field(default="")


def check_base(ident: LakeIdent, found: Stamp | None, stamp: Stamp, base: LSN | None) -> None:
    """See ``Destination.put``; ``found`` is the source's position on the branch (55000)."""
    if base is None or (found and found.epoch == stamp.epoch and found.lsn >= base):
        return
    stands = "at no position" if found is None else f"at {found.lsn} of epoch {found.epoch}"
    raise ObjectNotInPrerequisiteState(
        f'lake table "{ident}" is behind what was published to it',
        detail=f"It stands {stands} for this source; {base} was published. It was set back.",
        hint="Set the lake table to the snapshot it had, or copy it again from each of its sources "
        "with pgsub refresh NAME --recopy TABLE.",
    )


def key_not_unique(
    ident: LakeIdent, key: Sequence[str], detail: str, then: str = ", or copy the table again."
) -> UniqueViolation:
    """23505: rows of the lake table share a key."""
    return UniqueViolation(
        f'key ({", ".join(key)}) is not unique in lake table "{ident}"',
        detail=detail,
        hint=f"Remove the extra rows from the lake table{then}",
    )


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

    def put(
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
        """``put`` and ``count`` of one table."""
        return self.count([self.put(ident, branch, segments, stamp, base)])[0]

    def copy(
        self,
        ident: LakeIdent,
        branch: str,
        plan: CopyPlan,
        progress: Callable[[int, int], None],
    ) -> int:
        """Run the copy's ranges in parallel onto the branch; ``progress(done, total)`` ranges.
        Returns the number of rows copied."""

    def taken_keys(self, ident: LakeIdent, branch: str, key: Sequence[str]) -> TakenKeys:
        """What the rows that the branch's last commit appended meet in the table before it.

        Keys are compared by value; one with a NULL in it equals none.
        """

    def repeated_keys(
        self, ident: LakeIdent, branch: str, key: Sequence[str], source: str = ""
    ) -> int:
        """How many values of a key more than one row of the branch has; no NULL is one.

        ``source``: among the rows of that source.
        """

    def take_over(
        self,
        ident: LakeIdent,
        branch: str,
        columns: Sequence[str],
        key: Sequence[str],
        generated: Generated = (),
    ) -> None:
        """The rows that ``taken_keys`` counts become what was copied, as far as ``columns`` go.

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
