"""Find rows of a branch by their keys, in Spark SQL."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from workers.lake.sql.merge import (
    TARGET,
    KeyBounds,
    _aliased,
    _came_from,
    _column,
    _place,
    by_key,
    source_column,
    target_column,
)
from workers.lake.sql.statements import branch_path, identifier, sql_text, table_path
from workers.lake.table import LakeIdent


def find_positions(
    ident: LakeIdent, branch: str | None, columns: Sequence[str], of: str = ""
) -> str:
    """Up to ``n`` rows of the table that equal each source row, NULLs equal: image, f, p."""
    equal: list[exp.Expression] = [
        exp.NullSafeEQ(this=target_column(name), expression=source_column(f"c{n}"))
        for n, name in enumerate(columns)
    ] + _came_from(of)
    matches = sql_text(
        "SELECT",
        _aliased(source_column("image"), "image"),
        ",",
        _aliased(source_column("n"), "n"),
        *_place(),
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
    """``k`` of the source's keys ``b0…`` that are in the table, once per row that has one.

    With ``columns`` (of the table, maybe none) also the row's place ``f, p`` and its values in the
    columns: ``o0…``.
    """
    selected: list[str | exp.Expr] = []
    if columns is not None:
        selected += _place()
        for n, name in enumerate(columns):
            selected += [",", _aliased(target_column(name), f"o{n}")]
    return sql_text(
        "SELECT",
        _aliased(source_column("k"), "k"),
        *selected,
        "FROM",
        branch_path(ident, branch),
        f"AS {TARGET} JOIN s ON",
        exp.and_(*by_key(key, bounds, of)),
    )


def find_any_key(
    ident: LakeIdent, branch: str | None, keys: Sequence[tuple[str, Sequence[str]]], of: str = ""
) -> str:
    """Rows of the table that have a key of one of the sources: which of each, or NULL.

    ``keys`` are a source's view (its columns are ``k, b0…``) and the table's columns. A source
    without columns finds nothing and is not read.
    """
    sources = [(view, columns) for view, columns in keys if columns]
    numbers: list[str | exp.Expr] = []
    for at, (view, columns) in enumerate(keys):
        number = _column(view, "k") if columns else exp.Var(this="CAST(NULL AS BIGINT)")
        numbers += [*([","] if at else []), _aliased(number, f"k{at}" if at else "k")]
    joins: list[str | exp.Expr] = []
    for view, columns in sources:
        equal = [
            exp.EQ(this=target_column(name), expression=_column(view, f"b{n}"))
            for n, name in enumerate(columns)
        ]
        joins += [f"LEFT JOIN {view} ON", exp.and_(*equal)]
    found = exp.or_(
        *(
            exp.Not(this=exp.Is(this=_column(view, "k"), expression=exp.Null()))
            for view, _ in sources
        )
    )
    where = exp.and_(exp.Paren(this=found), *_came_from(of))
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
    """How many values of a key, NULL in none of its columns, more than one row has: ``n``."""
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
        exp.and_(*there, *_came_from(of)),
        "GROUP BY",
        *grouped,
        "HAVING count(*) > 1)",
    )


def find_ranges(ident: LakeIdent, column: str) -> str:
    """Rows and key range of every data file of main, from the manifests."""
    ends = exp.Dot(this=identifier("readable_metrics"), expression=identifier(column))
    return sql_text(
        "SELECT record_count,",
        _aliased(exp.Dot(this=ends.copy(), expression=identifier("lower_bound")), "low"),
        ",",
        _aliased(exp.Dot(this=ends, expression=identifier("upper_bound")), "high"),
        "FROM",
        table_path(ident, "data_files"),
    )
