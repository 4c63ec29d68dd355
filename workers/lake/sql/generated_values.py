"""Rows of a MERGE by position with what is generated computed beside them: ``g0…``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql.connect import functions as F  # noqa: N812 - its usual name
from pyspark.sql.connect.plan import SQL

from workers.lake.connect.session import LakeSession
from workers.lake.generated_columns import read_generated
from workers.lake.segment import Generated
from workers.lake.sql.merge import FILE, POSITION, SOURCE, UPDATE
from workers.lake.sql.statements import branch_path, identifier, name_of, sql_text
from workers.lake.table import LakeIdent


def used_beside(columns: Sequence[str], generated: Generated) -> list[str]:
    """Columns that only the table has and that the expressions use, in order."""
    used = {name for each in read_generated(generated) for name in each.uses}
    return sorted(used - set(columns))


def with_generated(
    rows: Any, columns: Sequence[str], own: Sequence[str], generated: Generated
) -> Any:
    """``rows`` have ``op``, ``c0…`` and the values that stay, ``o0…`` in the order of ``own``.

    Nothing is computed for a row that only goes. Columns are named with their table, ``s.c0``: an
    expression may have a parameter ``c0`` of its own.
    """
    names = {
        name: f"{SOURCE}.{new}" for name, new in zip(columns, numbered("c", columns), strict=True)
    }
    names |= {name: f"{SOURCE}.{held}" for name, held in zip(own, numbered("o", own), strict=True)}
    return rows.alias(SOURCE).select(
        "*",
        *(
            F.when(F.col("op") == UPDATE, F.expr(each.over(names.__getitem__))).alias(f"g{n}")
            for n, each in enumerate(read_generated(generated))
        ),
    )


def generated_at(
    session: LakeSession,
    ident: LakeIdent,
    branch: str,
    rows: Any,
    columns: Sequence[str],
    generated: Generated,
) -> Any:
    """The same for rows at positions ``f``, ``p`` of the branch, which has the values that stay."""
    own = used_beside(columns, generated)
    if own:
        held = session.frame(SQL(sql_text("SELECT * FROM", branch_path(ident, branch)))).select(
            F.col(FILE).alias("held_file"),
            F.col(POSITION).alias("held_pos"),
            *renamed(own, "o"),
        )
        there = (F.col("f") == F.col("held_file")) & (F.col("p") == F.col("held_pos"))
        rows = rows.join(held, there, "left").drop("held_file", "held_pos")
    return with_generated(rows, columns, own, generated)


def renamed(columns: Sequence[str], prefix: str) -> list[Any]:
    """The table's columns under the names of a source."""
    return [
        F.col(name_of(identifier(column))).alias(name)
        for column, name in zip(columns, numbered(prefix, columns), strict=True)
    ]


def numbered(prefix: str, columns: Sequence[str]) -> list[str]:
    """The names of a source's columns."""
    return [f"{prefix}{n}" for n in range(len(columns))]
