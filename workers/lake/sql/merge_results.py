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
from typing import Any, Final

from workers.lake.connect.session import LakeSession
from workers.lake.effects import Counts, Effect, Outcome, counts
from workers.lake.metadata.snapshots import ADDED, OPERATION
from workers.lake.sql.statements import sql_text, table_path, text
from workers.lake.table import LakeIdent

_READ: Final = (
    "added-position-deletes",
    "removed-position-deletes",
    ADDED,
    "total-records",
    "total-position-deletes",
    "spark.merge-into.num-target-rows-matched-updated",
    "spark.merge-into.num-target-rows-matched-deleted",
)


def read_outcomes(
    session: LakeSession, operations: Mapping[LakeIdent, Sequence[str]]
) -> dict[str, Outcome]:
    """The commits that carry these operation names, from their snapshots' summaries; one call."""
    read = ", ".join(_summary(name) for name in (OPERATION, *_READ))
    parts = (
        sql_text(
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
