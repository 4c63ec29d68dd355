"""Queries that find rows of a branch: by keys, by whole rows, and the key ranges of files.

The source is the view ``s``, as in ``merge``.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from workers.lake.sql.merge import (
    TARGET,
    KeyBounds,
    aliased,
    by_key,
    came_from,
    position_columns,
    source_column,
    target_column,
    view_column,
)
from workers.lake.sql.statements import branch_path, identifier, sql_text, table_path
from workers.lake.table import LakeIdent


def find_positions(
    ident: LakeIdent, branch: str | None, columns: Sequence[str], of: str = ""
) -> str:
    """For every source row up to ``n`` equal rows of the table, NULLs equal: image, f, p."""
    equal: list[exp.Expression] = [
        exp.NullSafeEQ(this=target_column(name), expression=source_column(f"c{n}"))
        for n, name in enumerate(columns)
    ] + came_from(of)
    matches = sql_text(
        "SELECT",
        aliased(source_column("image"), "image"),
        ",",
        aliased(source_column("n"), "n"),
        *position_columns(),
        "FROM",
        branch_path(ident, branch),
        f"AS {TARGET} JOIN s ON",
        exp.and_(*equal),
    )
    return sql_text(
        "WITH matches AS (",
        matches,
        "), numbered AS (SELECT image, n, f, p, row_number()"
        " OVER (PARTITION BY image ORDER BY f, p) AS k FROM matches)"
        " SELECT image, f, p FROM numbered WHERE k <= n",
    )


def find_keys(
    ident: LakeIdent,
    branch: str | None,
    key: Sequence[str],
    bounds: KeyBounds | None = None,
    of: str = "",
    *,
    columns: Sequence[str] | None = None,
) -> str:
    """``k`` of the source's keys ``b0…`` in the table, once per row with such a key.

    With ``columns`` (a list of the table's columns, maybe empty) also the row's position ``f, p``
    and values ``o0…``.
    """
    selected: list[str | exp.Expr] = []
    if columns is not None:
        selected += position_columns()
        for n, name in enumerate(columns):
            selected += [",", aliased(target_column(name), f"o{n}")]
    return sql_text(
        "SELECT",
        aliased(source_column("k"), "k"),
        *selected,
        "FROM",
        branch_path(ident, branch),
        f"AS {TARGET} JOIN s ON",
        exp.and_(*by_key(key, bounds, of)),
    )


def find_any_key(
    ident: LakeIdent, branch: str | None, keys: Sequence[tuple[str, Sequence[str]]], of: str = ""
) -> str:
    """Rows of the table with a key of any source: the key's number in every source, or NULL.

    ``keys`` are pairs of a source's view (with columns ``k, b0…``) and the table's columns. A
    source without columns is not read, and finds no row.
    """
    sources = [(view, columns) for view, columns in keys if columns]
    numbers: list[str | exp.Expr] = []
    for at, (view, columns) in enumerate(keys):
        number = view_column(view, "k") if columns else exp.Var(this="CAST(NULL AS BIGINT)")
        numbers += [*([","] if at else []), aliased(number, f"k{at}" if at else "k")]
    joins: list[str | exp.Expr] = []
    for view, columns in sources:
        equal = [
            exp.EQ(this=target_column(name), expression=view_column(view, f"b{n}"))
            for n, name in enumerate(columns)
        ]
        joins += [f"LEFT JOIN {view} ON", exp.and_(*equal)]
    found = exp.or_(
        *(
            exp.Not(this=exp.Is(this=view_column(view, "k"), expression=exp.Null()))
            for view, _ in sources
        )
    )
    where = exp.and_(exp.Paren(this=found), *came_from(of))
    return sql_text(
        "SELECT",
        *numbers,
        "FROM",
        branch_path(ident, branch),
        f"AS {TARGET}",
        *joins,
        "WHERE",
        where,
    )


def count_repeated(ident: LakeIdent, branch: str | None, key: Sequence[str], of: str = "") -> str:
    """The number ``n`` of key values, without a NULL, that more than one row has."""
    columns = [target_column(name) for name in key]
    there: list[exp.Expression] = [
        exp.Not(this=exp.Is(this=column.copy(), expression=exp.Null())) for column in columns
    ]
    grouped: list[str | exp.Expr] = []
    for column in columns:
        grouped += [*([","] if grouped else []), column]
    return sql_text(
        "SELECT count(*) AS n FROM (SELECT 1 FROM",
        branch_path(ident, branch),
        f"AS {TARGET} WHERE",
        exp.and_(*there, *came_from(of)),
        "GROUP BY",
        *grouped,
        "HAVING count(*) > 1)",
    )


def find_ranges(ident: LakeIdent, column: str) -> str:
    """Rows and key range of every data file of ``main``, from the manifests."""
    ends = exp.Dot(this=identifier("readable_metrics"), expression=identifier(column))
    return sql_text(
        "SELECT record_count,",
        aliased(exp.Dot(this=ends.copy(), expression=identifier("lower_bound")), "low"),
        ",",
        aliased(exp.Dot(this=ends, expression=identifier("upper_bound")), "high"),
        "FROM",
        table_path(ident, "data_files"),
    )
