"""Types of generated columns. Spark analyses the expressions, but does not run a query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from sqlglot import exp

from catalog.errcodes import INVALID_OBJECT_DEFINITION, ReplicationError
from workers.lake.connect.errors import LakeFailure
from workers.lake.generated_columns import check_uses, read_generated
from workers.lake.segment import Generated
from workers.lake.sql.spark_typemap import arrow_type, spark_ddl_or_void
from workers.lake.table import LakeColumn, LakeIdent


class Analysing(Protocol):
    """The part of a ``LakeSession`` that the check needs."""

    def schema(self, sql: str, what: str) -> Any:
        """The Spark schema of a query, without running it."""


def generated_types(
    session: Analysing, ident: LakeIdent, columns: Sequence[LakeColumn], generated: Generated
) -> tuple[LakeColumn, ...]:
    """The generated columns with types; see ``Destination.generated_columns``.

    The query's columns have different names than the table's columns: Spark refuses a name that
    ``read_generated`` overlooked, so the name cannot stand for an old value in a MERGE. The query
    is a join, because a join's condition has to be deterministic and may hold no aggregate and no
    generator.
    """
    check_uses(generated, [column.name for column in columns], ident)
    ordinals = {column.name: n for n, column in enumerate(columns)}
    values = [
        exp.Var(this=each.over(lambda name: f"s.c{ordinals[name]}"))
        for each in read_generated(generated)
    ]
    nulls = [
        exp.alias_(exp.Var(this=f"CAST(NULL AS {spark_ddl_or_void(column.type)})"), f"c{n}")
        for n, column in enumerate(columns)
    ]
    query = (
        exp.select(*(exp.alias_(value, f"g{n}") for n, value in enumerate(values)))
        .from_(exp.select(*nulls).subquery("s"))
        .join(
            exp.select(exp.alias_(exp.Literal.number(1), "one")).subquery("o"),
            on=exp.and_(*(exp.Is(this=value.copy(), expression=exp.Null()) for value in values)),
        )
    )
    try:
        schema = session.schema(
            query.sql(dialect="spark"), f'reading generation expressions of lake table "{ident}"'
        )
    except LakeFailure as error:
        names = ", ".join(f'"{column}"' for column, _ in generated)
        raise ReplicationError(
            f'generation expression of lake table "{ident}" cannot be computed',
            detail=f"The columns are {names}. {error.detail or ''}".strip(),
            hint="Correct generated of the table in the configuration.",
            sqlstate=INVALID_OBJECT_DEFINITION,
        ) from None
    return tuple(
        LakeColumn(column, arrow_type(field.dataType))
        for (column, _), field in zip(generated, schema.fields, strict=True)
    )
