"""What MERGEs did, asked of the commits they made.

A MERGE answers nothing, but its snapshot's summary counts rows. To read one is a Spark job, a sixth
of what a MERGE of 200 rows takes; so those of several tables are read by one query.

Two of a summary's figures count the rows of the table that were matched, and each may count too
many. A merge-on-read commit writes one position delete for each such row; it also rewrites the
deletes that a data file had before, together with its own, and removes the old ones, so the
difference counts matched rows. But where the rows of one data file end in two tasks, each task
rewrites the file's old deletes: once removed, twice added. Spark's own count (4.1 and later) knows
nothing of old deletes, but counts a task again that is run again. The smaller one is right unless
both happen at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from catalog.errcodes import ReplicationError, UniqueViolation
from workers.lake.counts import Counts, Effect, LakeIdent, Merge
from workers.lake.destination import key_not_unique
from workers.lake.session import LakeSession
from workers.lake.snapshots import ADDED, OPERATION
from workers.lake.statements import join, table_path, text

_READ: Final = (
    "added-position-deletes",
    "removed-position-deletes",
    ADDED,
    "total-records",
    "total-position-deletes",
    "spark.merge-into.num-target-rows-matched-updated",
    "spark.merge-into.num-target-rows-matched-deleted",
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one commit of ours did: rows of the table it touched, rows it added.

    ``rows`` and ``dead``: what the files hold after it, deleted rows included, and these.
    """

    matched: int
    added: int
    rows: int
    dead: int


def read_outcomes(
    session: LakeSession, operations: Mapping[LakeIdent, Sequence[str]]
) -> dict[str, Outcome]:
    """The commits that carry these operation names, from their snapshots' summaries; one call."""
    read = ", ".join(_summary(name) for name in (OPERATION, *_READ))
    parts = (
        join(
            f"SELECT {read} FROM",
            table_path(ident, "snapshots"),
            f"WHERE {_summary(OPERATION)} IN ({', '.join(map(_literal, names))})",
        )
        for ident, names in operations.items()
    )
    tables = ", ".join(f'"{ident}"' for ident in operations)
    what = f"reading the outcome of a commit to lake table {tables}"
    rows = session.query(" UNION ALL ".join(parts), what)
    columns: list[list[Any]] = [column.to_pylist() for column in rows.columns]
    return {name: _outcome(*values) for name, *values in zip(*columns, strict=True)}


def count(session: Callable[[], LakeSession], effects: Sequence[Effect]) -> list[Counts]:
    """What was done in each; a key that is there twice is an error (23505).

    One call in ``session``, which is not asked for where nothing was merged.
    """
    operations: dict[LakeIdent, list[str]] = {}
    for effect in effects:
        for merge in effect.merges:
            operations.setdefault(effect.ident, []).append(merge.operation)
    return counts(effects, read_outcomes(session(), operations) if operations else {})


def counts(effects: Sequence[Effect], outcomes: Mapping[str, Outcome]) -> list[Counts]:
    """``count``, where the outcomes by their operations are known."""
    return [_counts(effect, outcomes) for effect in effects]


def duplicate(ident: LakeIdent, key: tuple[str, ...], detail: str) -> UniqueViolation:
    """23505: more rows were matched than there are changes."""
    if not key:
        return UniqueViolation(
            f'a row of lake table "{ident}" was matched more than once', detail=detail
        )
    return key_not_unique(ident, key, detail)


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


def _outcome(
    deleted: str | None,
    carried: str | None,
    added: str | None,
    rows: str | None,
    dead: str | None,
    merged_updates: str | None,
    merged_deletes: str | None,
) -> Outcome:
    matched = int(deleted or 0) - int(carried or 0)
    if merged_updates is not None or merged_deletes is not None:
        matched = min(matched, int(merged_updates or 0) + int(merged_deletes or 0))
    return Outcome(matched, int(added or 0), int(rows or 0), int(dead or 0))


def _summary(name: str) -> str:
    return f"summary[{_literal(name)}]"


def _literal(value: str) -> str:
    return text(value).sql(dialect="spark")
