"""Compute generated columns for the rows of a MERGE by position: ``g0…``."""

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
    """Unpublished columns of the table that the expressions use, in order."""
    used = {name for each in read_generated(generated) for name in each.uses}
    return sorted(used - set(columns))


def with_generated(
    rows: Any, columns: Sequence[str], own: Sequence[str], generated: Generated
) -> Any:
    """The rows with the generated columns ``g0…``.

    ``rows`` have ``op``, ``c0…`` and the kept values ``o0…`` in the order of ``own``. A deleted row
    gets NULL. Columns are written with the table's name, ``s.c0``, because an expression may have
    a parameter ``c0``.
    """
    names = {
        name: f"{SOURCE}.{new}" for name, new in zip(columns, numbered("c", columns), strict=True)
    }
    names |= {name: f"{SOURCE}.{old}" for name, old in zip(own, numbered("o", own), strict=True)}
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
    """``with_generated`` for rows at positions ``f``, ``p``; the branch has the kept values."""
    own = used_beside(columns, generated)
    if own:
        old = session.frame(SQL(sql_text("SELECT * FROM", branch_path(ident, branch)))).select(
            F.col(FILE).alias("old_file"),
            F.col(POSITION).alias("old_pos"),
            *renamed(own, "o"),
        )
        there = (F.col("f") == F.col("old_file")) & (F.col("p") == F.col("old_pos"))
        rows = rows.join(old, there, "left").drop("old_file", "old_pos")
    return with_generated(rows, columns, own, generated)


def renamed(columns: Sequence[str], prefix: str) -> list[Any]:
    """The table's columns under the names of a source: prefix and number."""
    return [
        F.col(name_of(identifier(column))).alias(name)
        for column, name in zip(columns, numbered(prefix, columns), strict=True)
    ]


def numbered(prefix: str, columns: Sequence[str]) -> list[str]:
    """The names of a source's columns: prefix and number."""
    return [f"{prefix}{n}" for n in range(len(columns))]
