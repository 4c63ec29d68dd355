"""The altered tables in the lake against the publisher's: their names, their columns, their rows.

A native subscriber follows no change of a table, so the publisher alone is the oracle. A column
that the publisher dropped may stay in the lake, where ``drops`` does not say otherwise. What is
noticed by looking is there after a while. A renamed table may keep the name of its lake table, if a
table that left the subscription has the new name in the lake.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any, Final

from pyiceberg.exceptions import NoSuchTableError

from tests.chaos.compare import Difference, difference
from tests.fix_publisher import Database
from tests.harness import Pgsub, python_rows
from tests.twin import column_names, native_rows
from tests.waiting import wait_until

_PATIENCE: Final = 150.0
"""Seconds until a change that sends nothing is looked for, and the table is copied again."""

_PUBLISHED: Final = "SELECT tablename FROM pg_publication_tables WHERE pubname = %s ORDER BY 1"


def await_equal(
    publisher: Database, ours: Pgsub, publication: str, schema: str, *, drops: bool
) -> tuple[int, list[Difference]]:
    """The rows of all tables of the publication, and what still differs when patience is over."""
    found: list[Difference] = []
    rows = 0

    def is_equal() -> bool:
        nonlocal found, rows
        lake_names = {
            f"{row['nspname']}.{row['relname']}": (row["lake_schema"], row["lake_table"])
            for row in ours.status("pg_subscription_rel")
        }
        compared = [
            _compare(
                *(publisher, ours, f"{schema}.{table}"),
                lake_names.get(f"{schema}.{table}", (schema, table)),
                drops=drops,
            )
            for (table,) in publisher.execute(_PUBLISHED, (publication,))
        ]
        rows = sum(count for count, _ in compared)
        found = [each for _, differences in compared for each in differences]
        return not found

    with suppress(AssertionError):
        wait_until(is_equal, _PATIENCE, "the altered tables are the publisher's", pause=2.0)
    return rows, found


def _compare(
    publisher: Database, ours: Pgsub, name: str, lake_name: tuple[str, str], *, drops: bool
) -> tuple[int, list[Difference]]:
    columns = column_names(publisher, name)
    expected = native_rows(publisher, name, columns)
    try:
        lake = ours.arrow(*lake_name)
    except NoSuchTableError:
        return len(expected), [_shapes(name, ["no such table"], columns)]
    if not set(columns) <= set(lake.column_names) or (drops and len(columns) < lake.num_columns):
        return len(expected), [_shapes(name, lake.column_names, columns)]
    return len(expected), difference(name, "publisher", expected, python_rows(lake, columns))


def _shapes(table: str, found: list[str], expected: list[str]) -> Difference:
    """A difference of columns, shown as a row each."""
    should: Counter[tuple[Any, ...]] = Counter([tuple(sorted(expected))])
    return Difference(table, "publisher", should, Counter([tuple(sorted(found))]))
