"""The demo's proof: publisher and lake compute a digest of every table, independently.

A row becomes canonical text: ``length:text`` for every column, or ``N`` for NULL. Two different
rows never have equal text. A table's digest is the sum of the first 60 bits of every row's md5,
computed by PostgreSQL on the publisher's tables and by Spark on the lake's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Template
from typing import Final

from subscriber.demo.workload import SCHEMA, TABLES, Column, Table

POSTGRES_TEXT: Final = {
    "plain": Template("CAST($c AS text)"),
    "instant": Template("to_char($c AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')"),
    "array": Template("CAST($c AS text)"),
}
SPARK_TEXT: Final = {
    "plain": Template("CAST($c AS STRING)"),
    "instant": Template("date_format($c, 'yyyy-MM-dd HH:mm:ss.SSSSSS')"),
    "array": Template("concat('{', array_join($c, ','), '}')"),
}
POSTGRES_FIELD: Final = Template("coalesce(length($t) || ':' || $t, 'N')")
SPARK_FIELD: Final = Template("coalesce(concat(CAST(length($t) AS STRING), ':', $t), 'N')")
POSTGRES_DIGEST: Final = Template(
    "SELECT '$name', count(*),"
    " coalesce(sum(('x' || substr(md5(concat($fields)), 1, 15))::bit(60)::bigint::numeric),"
    " 0)::text"
    " FROM $schema.$name"
)
SPARK_DIGEST: Final = Template(
    "SELECT '$name' AS name, count(*) AS n, CAST(coalesce(sum(CAST(conv(substr(md5(CAST("
    "concat($fields) AS BINARY)), 1, 15), 16, 10) AS DECIMAL(38, 0))), 0) AS STRING) AS digest"
    " FROM lake.$schema.$name"
)


@dataclass(frozen=True, slots=True)
class Digest:
    """A table's number of rows, and the sum over all rows."""

    rows: int
    total: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The digests of a table on the publisher and in the lake."""

    table: str
    publisher: Digest
    lake: Digest

    @property
    def is_equal(self) -> bool:
        """Are the digests equal?"""
        return self.publisher == self.lake


def publisher_query() -> str:
    """All tables' digests in PostgreSQL's SQL: rows of name, count, sum."""
    return _union(POSTGRES_DIGEST, POSTGRES_FIELD, POSTGRES_TEXT)


def lake_query() -> str:
    """All tables' digests in Spark's SQL: columns name, n, digest."""
    return _union(SPARK_DIGEST, SPARK_FIELD, SPARK_TEXT)


def verdicts(
    publisher: Sequence[tuple[str, int, str]], lake: Sequence[Mapping[str, object]]
) -> list[Verdict]:
    """The answers of both queries, table by table."""
    there = {str(row["name"]): Digest(int(str(row["n"])), str(row["digest"])) for row in lake}
    here = {name: Digest(rows, total) for name, rows, total in publisher}
    return [Verdict(table.name, here[table.name], there[table.name]) for table in TABLES]


def _union(digest: Template, field: Template, text: Mapping[str, Template]) -> str:
    def one(table: Table) -> str:
        fields = ", ".join(_field(column, field, text) for column in table.columns)
        return digest.substitute(name=table.name, schema=SCHEMA, fields=fields)

    return "\nUNION ALL\n".join(map(one, TABLES))


def _field(column: Column, field: Template, text: Mapping[str, Template]) -> str:
    return field.substitute(t=text[column.kind].substitute(c=column.name))
