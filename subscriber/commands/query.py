"""``pgsub sql``: Spark SQL on the lake, with rows as table, JSON or CSV."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

from subscriber.printing import Format, print_rows, window_width


def run_sql(url: str, query: str, form: Format) -> None:
    """Run ``query`` and print the result.

    A statement without a result prints nothing, but as JSON an empty array: a program can parse the
    output without knowing the kind of statement.
    """
    from workers.lake.api.session_catalogs import close_catalogs_of
    from workers.lake.connect.user_query import run_query

    table = run_query(url, query, partial(close_catalogs_of, url))
    if not table.column_names:
        if form is Format.JSON:
            print_rows([], [], form)
        return
    names = _distinct(table.column_names)
    values = [[_value(value) for value in column.to_pylist()] for column in table.columns]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]
    print_rows(names, rows, form, width=window_width())


def _distinct(columns: list[str]) -> list[str]:
    """Column names as keys; a repeated name gets a number, as in ``a_2``."""
    seen: dict[str, int] = {}
    keys = []
    for name in columns:
        seen[name] = seen.get(name, 0) + 1
        keys.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return keys


def _value(value: Any) -> Any:
    """A value as PostgreSQL's text where JSON has no such type.

    A decimal keeps all digits as text, a byte string is ``\\x`` and hex, a local timestamp has no
    offset.
    """
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, Decimal | date | timedelta) and not isinstance(value, datetime):
        return str(value)
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.isoformat(" ")
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, float) and value != value:
        return "NaN"
    if isinstance(value, list):
        return [_value(item) for item in value]
    if isinstance(value, dict):
        return {key: _value(item) for key, item in value.items()}
    return value
