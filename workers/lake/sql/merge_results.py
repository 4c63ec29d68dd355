"""Read the results of MERGEs from the snapshots that the MERGEs made.

Spark returns no counts for a MERGE, but the snapshot's summary has counts. Reading a summary is a
Spark job and takes a sixth of the time of a MERGE of 200 rows, so a single query reads the
summaries of several tables.

Two figures of a summary count the matched rows, and either figure may be too large. A
merge-on-read commit writes a position delete for every matched row. The commit also rewrites the
earlier deletes of a data file together with the new deletes, and removes the earlier delete files;
so added minus removed deletes is the number of matched rows. But if two tasks change rows of the
same data file, both tasks rewrite the file's earlier deletes: removed once, added twice. The second
figure, Spark's count (4.1 and later), leaves earlier deletes out, but counts the rows of a repeated
task twice. The smaller figure is right unless both happen at once.
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
    """The outcomes of the commits with the given names, from snapshot summaries; a single call."""
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
    """The counts of every effect; 23505 if a change matched more rows than expected.

    A single call in ``session``, and no call for effects without a MERGE.
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
    deleted_rows: str | None,
    merged_updates: str | None,
    merged_deletes: str | None,
) -> Outcome:
    matched = int(deleted or 0) - int(carried or 0)
    if merged_updates is not None or merged_deletes is not None:
        matched = min(matched, int(merged_updates or 0) + int(merged_deletes or 0))
    return Outcome(matched, int(added or 0), int(rows or 0), int(deleted_rows or 0))


def _summary(name: str) -> str:
    return f"summary[{_literal(name)}]"


def _literal(value: str) -> str:
    return text(value).sql(dialect="spark")
