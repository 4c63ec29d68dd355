"""Counts of the rows that batches, copies and maintenance changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from catalog.errcodes import SerializationFailure
from config.limits import COMPACTION_AT_ONCE_BYTES, SMALL_FILE_BYTES, SMALL_FILES, WHOLE_FILE_BYTES
from workers.lake.refusals import duplicate
from workers.lake.table import LakeIdent

ListFiles = Callable[[str, Sequence[str]], None]
"""Stores the files of an expiry durably: Iceberg's uuid of the table, and the paths."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The rows that a batch changed in a table.

    ``*_missing`` count updates and deletes that found no row; ``*_origin_differs`` count updates
    and deletes of a row that another writer changed last, as far as known. ``rows`` is the number
    of rows in the table's files afterwards, ``deleted`` the number of deleted rows among them; both
    are 0 for a batch without changes of rows.
    """

    appended: int = 0
    merged: int = 0
    update_missing: int = 0
    delete_missing: int = 0
    update_origin_differs: int = 0
    delete_origin_differs: int = 0
    rows: int = field(default=0, compare=False)
    deleted: int = field(default=0, compare=False)


def added(one: Counts, other: Counts) -> Counts:
    """The sum of both counts. The table's size is the second argument's, if known."""
    last = other if other.rows else one
    return Counts(
        one.appended + other.appended,
        one.merged + other.merged,
        one.update_missing + other.update_missing,
        one.delete_missing + other.delete_missing,
        one.update_origin_differs + other.update_origin_differs,
        one.delete_origin_differs + other.delete_origin_differs,
        last.rows,
        last.deleted,
    )


@dataclass(frozen=True, slots=True)
class Merge:
    """A MERGE of ``rows`` changes, ``updates`` of them updates; ``operation`` names the commit.

    ``key`` are the columns that matched rows, empty for a match by position. ``source`` is the
    source of the rows in a shared table.
    """

    rows: int
    updates: int
    key: tuple[str, ...] = ()
    operation: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Effect:
    """The work of a batch on a branch, for one source of a shared table.

    The counts of ``merges`` are not yet in ``counts``. ``commits`` is the number of snapshots that
    were made; where several sources are written together, the first effect counts all snapshots.
    ``snapshots`` are the ids of the snapshots that a shared table had before.
    """

    ident: LakeIdent
    branch: str
    counts: Counts
    merges: tuple[Merge, ...] = ()
    commits: int = 0
    snapshots: frozenset[int] = frozenset()


def joined(one: Effect, other: Effect) -> Effect:
    """The work of two slices of a transaction on one branch."""
    return replace(
        one,
        counts=added(one.counts, other.counts),
        merges=(*one.merges, *other.merges),
        commits=one.commits + other.commits,
        snapshots=one.snapshots or other.snapshots,
    )


@dataclass(frozen=True, slots=True)
class FileSizes:
    """Sizes of data files, in bytes, for compaction and vacuum.

    Files below ``small`` are merged into files of size ``whole``, unless there are fewer than
    ``few`` small files. Vacuum rewrites files of ``at_once`` bytes in a turn.
    """

    small: int = SMALL_FILE_BYTES
    whole: int = WHOLE_FILE_BYTES
    at_once: int = COMPACTION_AT_ONCE_BYTES
    few: int = SMALL_FILES

    @property
    def bar(self) -> int:
        """The size below which a file is small. A merged file, even a short one, never is."""
        return min(self.small, self.whole * 3 // 4)


@dataclass(frozen=True, slots=True)
class Orphans:
    """The number of removed orphan files; ``left`` is the reason why none was looked for."""

    files: int = 0
    left: str | None = None


@dataclass(frozen=True, slots=True)
class ExistingKeys:
    """Keys that copied rows share with rows from before the copy.

    ``copied_rows`` counts the copied rows with such a key, ``existing_rows`` the earlier rows.
    """

    copied_rows: int
    existing_rows: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a single MERGE: existing rows that were matched, rows that were added.

    ``rows`` are the rows in the table's files after the commit, ``deleted`` of them are deleted.
    """

    matched: int
    added: int
    rows: int
    deleted: int


def counts(effects: Sequence[Effect], outcomes: Mapping[str, Outcome]) -> list[Counts]:
    """The counts of each effect, from the outcomes of all operations."""
    return [_counts(effect, outcomes) for effect in effects]


def _counts(effect: Effect, outcomes: Mapping[str, Outcome]) -> Counts:
    found = effect.counts
    for merge in effect.merges:
        outcome = outcomes.get(merge.operation)
        if outcome is None:
            raise SerializationFailure(
                f'a commit to lake table "{effect.ident}" cannot be found again',
                detail="No snapshot carries its name.",
                # Another client expired the snapshot; the next attempt commits again.
            )
        found = _add(found, effect.ident, merge, outcome)
    return found


def _add(counts: Counts, ident: LakeIdent, merge: Merge, outcome: Outcome) -> Counts:
    if outcome.matched > merge.rows:
        detail = f"{merge.rows} keys matched {outcome.matched} rows."
        raise duplicate(ident, merge.key, detail)
    update_missing = merge.updates - outcome.added  # the new form of an updated row is added
    missing = merge.rows - outcome.matched
    return replace(
        counts,
        merged=counts.merged + outcome.matched,
        update_missing=counts.update_missing + update_missing,
        delete_missing=counts.delete_missing + missing - update_missing,
        rows=outcome.rows,
        deleted=outcome.deleted,
    )
