"""The oracle: rows of the lake against the publisher's, and against a native subscriber's.

Rows are compared as multisets, so that a row that is lost, doubled or changed shows. A column that
the publisher dropped is compared with the native subscriber's, which keeps it as we do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.fix_publisher import Database
from tests.harness import Pgsub
from tests.twin import column_names, native_rows

_SHOWN: Final = 4
"""Rows shown of each side of a difference."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Rows of a lake table that are missing and rows that are too many, against ``other``."""

    table: str
    other: str
    missing: Counter[tuple[Any, ...]]
    extra: Counter[tuple[Any, ...]]

    def __str__(self) -> str:
        def shown(rows: Counter[tuple[Any, ...]]) -> str:
            return ", ".join(_short(row) for row in list(rows)[:_SHOWN])

        return (
            f"{self.table} against {self.other}: {self.missing.total()} rows missing"
            f" [{shown(self.missing)}], {self.extra.total()} too many [{shown(self.extra)}]"
        )


@dataclass(frozen=True, slots=True)
class Compared:
    """What was compared: tables with the columns the publisher has, and what differed.

    ``native``: whether a native subscriber took part; if not, ``native_wrong`` says nothing.
    """

    rows: int
    native: bool
    wrong: tuple[Difference, ...]
    native_wrong: tuple[Difference, ...]


def compare(
    publisher: Database, twin: Database | None, ours: Pgsub, schema: str, tables: Sequence[str]
) -> Compared:
    """Every table against the publisher; with a twin, also against it, and the twin itself."""
    rows = 0
    wrong: list[Difference] = []
    native_wrong: list[Difference] = []
    for table in tables:
        name = f"{schema}.{table}"
        columns = column_names(publisher, name)
        published = native_rows(publisher, name, columns)
        rows += len(published)
        wrong += difference(name, "publisher", published, ours.rows(schema, table, columns))
        if twin is None:
            continue
        off = difference(name, "publisher", published, native_rows(twin, name, columns))
        native_wrong += off
        kept = column_names(twin, name)
        if not off and kept != columns:
            native = native_rows(twin, name, kept)
            wrong += difference(name, "native subscriber", native, ours.rows(schema, table, kept))
    return Compared(rows, twin is not None, tuple(wrong), tuple(native_wrong))


def difference(
    table: str, other: str, expected: Sequence[tuple[Any, ...]], found: Sequence[tuple[Any, ...]]
) -> list[Difference]:
    """How the rows of two tables differ; nothing if they are equal, in whatever order."""
    should, is_ = Counter(map(_hashable, expected)), Counter(map(_hashable, found))
    missing, extra = should - is_, is_ - should
    return [Difference(table, other, missing, extra)] if missing or extra else []


def _hashable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(tuple(value) if isinstance(value, list) else value for value in row)


def _short(row: tuple[Any, ...]) -> str:
    text = repr(row)
    return text if len(text) < 120 else f"{text[:60]}…{text[-50:]}"
