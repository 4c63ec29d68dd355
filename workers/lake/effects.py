"""A lake table's name, and what a batch did to the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from catalog.errcodes import ReplicationError
from workers.lake.refusals import duplicate
from workers.lake.table import LakeIdent


@dataclass(frozen=True, slots=True)
class Counts:
    """What a batch did to a table.

    ``*_missing`` count updates and deletes that found no row; ``*_origin_differs`` those that met
    one which somebody else changed last, where that is known. ``rows`` is how many the table's
    files hold then, ``dead`` how many of them are deleted; both 0 where nothing was merged.
    """

    appended: int = 0
    merged: int = 0
    update_missing: int = 0
    delete_missing: int = 0
    update_origin_differs: int = 0
    delete_origin_differs: int = 0
    rows: int = field(default=0, compare=False)
    dead: int = field(default=0, compare=False)


def added(one: Counts, other: Counts) -> Counts:
    """What both did; the table is as the ``other`` left it, if that says."""
    last = other if other.rows else one
    return Counts(
        one.appended + other.appended,
        one.merged + other.merged,
        one.update_missing + other.update_missing,
        one.delete_missing + other.delete_missing,
        one.update_origin_differs + other.update_origin_differs,
        one.delete_origin_differs + other.delete_origin_differs,
        last.rows,
        last.dead,
    )


@dataclass(frozen=True, slots=True)
class Merge:
    """A MERGE of ``rows`` changes, ``updates`` of them no deletes; ``operation`` names its commit.

    ``key`` is what rows were matched by; () where it was their place.
    """

    rows: int
    updates: int
    key: tuple[str, ...] = ()
    operation: str = ""


@dataclass(frozen=True, slots=True)
class Effect:
    """What was put on a branch: ``counts`` without what the ``merges`` did, which is to be read."""

    ident: LakeIdent
    branch: str
    counts: Counts
    merges: tuple[Merge, ...] = ()


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
class ExistingKeys:
    """Keys that copied rows share with rows that were in the table before the copy.

    ``copied_rows`` counts the copied rows, ``existing_rows`` the rows that were in the table.
    """

    copied_rows: int
    existing_rows: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one commit of ours did: rows of the table it touched, rows it added.

    ``rows`` and ``dead``: what the files hold after it, deleted rows included, and these.
    """

    matched: int
    added: int
    rows: int
    dead: int


def counts(effects: Sequence[Effect], outcomes: Mapping[str, Outcome]) -> list[Counts]:
    """``count``, where the outcomes by their operations are known."""
    return [_counts(effect, outcomes) for effect in effects]


def _counts(effect: Effect, outcomes: Mapping[str, Outcome]) -> Counts:
    found = effect.counts
    for merge in effect.merges:
        outcome = outcomes.get(merge.operation)
        if outcome is None:
            raise ReplicationError(
                f'a commit to lake table "{effect.ident}" cannot be found again',
                detail="No snapshot carries its name.",
                sqlstate="40001",  # somebody else expired it; the next attempt makes another one
            )
        found = _add(found, effect.ident, merge, outcome)
    return found


def _add(counts: Counts, ident: LakeIdent, merge: Merge, outcome: Outcome) -> Counts:
    if outcome.matched > merge.rows:
        detail = f"{merge.rows} keys matched {outcome.matched} rows."
        raise duplicate(ident, merge.key, detail)
    update_missing = merge.updates - outcome.added  # a row it updates is added anew
    missing = merge.rows - outcome.matched
    return replace(
        counts,
        merged=counts.merged + outcome.matched,
        update_missing=counts.update_missing + update_missing,
        delete_missing=counts.delete_missing + missing - update_missing,
        rows=outcome.rows,
        dead=outcome.dead,
    )
