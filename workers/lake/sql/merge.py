"""MERGE statements, as syntax trees: matched rows only, by key or by row position.

The source is always the view ``s`` with staged columns (``op``, ``b0…``, ``c0…``, ``m0…``), the
target is always ``TARGET``. There is never a NOT MATCHED branch: new rows are appended, because a
full outer MERGE shuffles the whole target. ``CASE`` makes Spark read the target's old column, so it
appears only for columns with unsent values (unchanged out-of-line values).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final

from sqlglot import exp

from workers.lake.generated_columns import read_generated
from workers.lake.segment import Generated
from workers.lake.sql.statements import branch_path, identifier, sql_text
from workers.lake.table import SOURCE_COLUMN, LakeIdent

SOURCE: Final = "s"
TARGET: Final = "_pgsub_t"
"""Not ``t``: if the table has a column ``t``, Spark takes ``t._file`` for a field of the column."""
UPDATE: Final = 0
DELETE: Final = 1

FILE: Final = "_file"
POSITION: Final = "_pos"

Bound = int | str | date | datetime


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """Literal bounds on a key column of the target, so that Spark can skip whole files."""

    column: str
    low: Bound
    high: Bound


def target_column(name: str) -> exp.Column:
    """A column of the lake table."""
    return exp.Column(this=identifier(name), table=identifier(TARGET))


def source_column(name: str) -> exp.Column:
    """A staged column."""
    return exp.Column(this=identifier(name), table=identifier(SOURCE))


def merge_by_key(
    ident: LakeIdent,
    branch: str | None,
    *,
    columns: Sequence[str],
    key: Sequence[str],
    unchanged: Collection[str] = (),
    bounds: KeyBounds | None = None,
    deletes: bool = True,
    updates: bool = True,
    of: str = "",
    generated: Generated = (),
) -> str:
    """Update or delete the rows with the source's base key ``b0…``.

    ``of``, here and below, limits a shared table's rows to a source.
    ``deletes`` and ``updates`` say whether the source holds deletes and updates; the statement
    has no clause for the missing kind.
    """
    assignments = _assignments(columns, unchanged, generated)
    whens = _whens(assignments, deletes=deletes, updates=updates)
    return _merge(ident, branch, by_key(key, bounds, of), whens)


def merge_by_position(
    ident: LakeIdent,
    branch: str | None,
    *,
    columns: Sequence[str],
    deletes: bool,
    updates: bool,
    generated: Sequence[str] = (),
) -> str:
    """Update or delete the rows at the source's ``f`` (file) and ``p`` (position).

    Iceberg 1.11 fails on a MERGE by position in which Spark has to cast a value ("Field _spec_id
    not found in source schema"). So the source has the ``generated`` columns computed: ``g0…``.
    """
    values = [(f"c{n}", name) for n, name in enumerate(columns)]
    values += [(f"g{n}", name) for n, name in enumerate(generated)]
    assignments = [
        exp.EQ(this=assigned_column(name), expression=source_column(value))
        for value, name in values
    ]
    whens = _whens(assignments, deletes=deletes, updates=updates)
    return _merge(ident, branch, by_position(), whens)


def assigned_column(name: str) -> exp.Column:
    """The left side of an assignment: the table's column, never a source's of the same name."""
    return target_column(name)


def by_key(
    key: Sequence[str], bounds: KeyBounds | None = None, of: str = ""
) -> list[exp.Expression]:
    """The condition that a row has the source's base key."""
    on: list[exp.Expression] = [
        exp.EQ(this=target_column(name), expression=source_column(f"b{n}"))
        for n, name in enumerate(key)
    ]
    on += came_from(of)
    return on if bounds is None else [*on, _between(bounds)]


def by_position() -> list[exp.Expression]:
    """The condition that a row is at the source's position."""
    return [
        exp.EQ(this=target_column(FILE), expression=source_column("f")),
        exp.EQ(this=target_column(POSITION), expression=source_column("p")),
    ]


def came_from(of: str) -> list[exp.Expression]:
    """The condition that a shared table's row came from a source; none without a source."""
    if not of:
        return []
    return [exp.EQ(this=target_column(SOURCE_COLUMN), expression=exp.Literal.string(of))]


def position_columns() -> list[str | exp.Expr]:
    """The position of a table's row, for the end of a list of columns: ``f, p``."""
    return [",", aliased(target_column(FILE), "f"), ",", aliased(target_column(POSITION), "p")]


def view_column(view: str, name: str) -> exp.Column:
    """A column of a source's view."""
    return exp.Column(this=identifier(name), table=identifier(view))


def aliased(node: exp.Expression, name: str) -> exp.Expression:
    """``node AS name``."""
    return exp.Alias(this=node, alias=identifier(name))


def _assignments(
    columns: Sequence[str], unchanged: Collection[str], generated: Generated
) -> list[exp.EQ]:
    """The assignments of an UPDATE; generated columns are computed over the new values."""
    new = {name: _new_value(n, name, name in unchanged) for n, name in enumerate(columns)}

    def value_of(name: str) -> str:
        return sql_text(new.get(name) or target_column(name))

    values = new | {
        each.column: exp.Var(this=each.over(value_of)) for each in read_generated(generated)
    }
    return [exp.EQ(this=assigned_column(name), expression=value) for name, value in values.items()]


def _new_value(ordinal: int, name: str, maybe_unchanged: bool) -> exp.Expression:
    new = source_column(f"c{ordinal}")
    if not maybe_unchanged:
        return new
    return exp.Case(
        ifs=[exp.If(this=source_column(f"m{ordinal}"), true=target_column(name))], default=new
    )


def _whens(assignments: list[exp.EQ], *, deletes: bool, updates: bool) -> list[exp.Expression]:
    """DELETE and UPDATE clauses, without a condition if the source holds a single kind.

    The literal has the type of ``op``: if Spark has to cast in a condition, Iceberg 1.11 fails on
    a MERGE by position.
    """
    whens: list[exp.Expression] = []
    if deletes:
        is_delete = exp.EQ(this=source_column("op"), expression=exp.Var(this=f"{DELETE}Y"))
        whens.append(
            exp.When(
                matched=True,
                condition=is_delete if updates else None,
                then=exp.Var(this="DELETE"),
            )
        )
    if updates:
        whens.append(exp.When(matched=True, then=exp.Update(expressions=assignments)))
    return whens


def _merge(
    ident: LakeIdent,
    branch: str | None,
    on: Sequence[exp.Expression],
    whens: Sequence[exp.Expression],
) -> str:
    # Not a table node of sqlglot: there is room for three names only, and a branch needs four.
    return sql_text(
        "MERGE INTO", branch_path(ident, branch), f"AS {TARGET} USING s ON", exp.and_(*on), *whens
    )


def _between(bounds: KeyBounds) -> exp.Expression:
    return exp.Between(
        this=target_column(bounds.column),
        low=_literal(bounds.low),
        high=_literal(bounds.high),
    )


def _literal(value: Bound) -> exp.Expression:
    if isinstance(value, datetime):
        kind = "TIMESTAMP_NTZ" if value.tzinfo is None else "TIMESTAMP"
        # Not strftime: %Y does not pad a year before 1000, and Spark cannot read "999".
        stamp = value.isoformat(sep=" ", timespec="microseconds")
        return exp.Var(this=f"{kind} '{stamp}'")
    if isinstance(value, date):
        return exp.Var(this=f"DATE '{value.isoformat()}'")
    if isinstance(value, int):
        return exp.Literal.number(value)
    return exp.Literal.string(value)
