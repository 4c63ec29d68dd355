"""Lake columns of a type that the configuration declares: copy and stream, text and binary form."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.fix_publisher import Database, new_database
from tests.harness import Pgsub
from tests.waiting import wait_until

SCHEMA = "typed"
FORMS = {"typed_binary": "kinds", "typed_text": "texts"}
"""Subscription, and schema in the lake → the table. ``texts`` has a column whose binary form is not
known: then copy and stream are text."""
COLUMNS = {
    "n": ("numeric", "decimal(38,9)", "n::numeric(38,9)"),
    "i": ("bigint", "decimal(20,2)", "i::numeric(20,2)"),
    "tz": ("timestamptz", "timestamp", "tz AT TIME ZONE 'UTC'"),
    "ts": ("timestamp", "timestamp", "ts"),
    "d": ("date", "timestamp", "d::timestamp"),
    "f": ("double precision", "string", "f::text"),
    "j": ("jsonb", "string", "j::text"),
    "a": ("int[]", "string", "a::text"),
    "b": ("bytea", "binary", "b"),
}
"""By column: the publisher's type, the declared type, and the value in the lake."""
VALUES = (
    "k.i, k.i * 1.5, k.i, '2024-02-29 12:00:00+05', '0001-01-01', '9999-12-31', k.i / 3.0, "
    "'{\"a\": [1.50]}', ARRAY[k.i, NULL], '\\x00ff'"
)
TYPES = {
    "n": pa.decimal128(38, 9),
    "i": pa.decimal128(20, 2),
    "tz": pa.timestamp("us"),
    "d": pa.timestamp("us"),
    "f": pa.string(),
    "a": pa.string(),
}


class Site:
    """What both sides have."""

    def __init__(self, pgsub: Pgsub, pub: Database) -> None:
        self.pgsub = pgsub
        self.pub = pub
        self.facts: dict[object, Any] = {}


@pytest.fixture(scope="module")
def site(pgsub: Pgsub, publisher: EmbeddedPublisher) -> Iterator[Site]:
    database = new_database(publisher, SCHEMA, schema=SCHEMA)
    site = Site(pgsub, database)
    columns = ", ".join(f"{name} {type}" for name, (type, _, _) in COLUMNS.items())
    shown = ", ".join(shown for _, _, shown in COLUMNS.values())
    database.run(
        f"CREATE TABLE kinds (id int PRIMARY KEY, {columns})",
        f"CREATE TABLE texts (id int PRIMARY KEY, {columns}, w tsvector)",
        *(f"INSERT INTO {t} SELECT {VALUES} FROM generate_series(1, 3) k(i)" for t in _both()),
        "CREATE TABLE large (id int PRIMARY KEY, n numeric)",
        "INSERT INTO large VALUES (1, 1)",
        *(f"CREATE PUBLICATION {name} FOR TABLE {t}, large" for name, t in FORMS.items()),
    )
    try:
        for name, table in FORMS.items():
            pgsub.create(name, database.dsn, [name], tables=_tables(name, table))
        for name in FORMS:
            pgsub.wait(name)
        database.run(
            *(f"INSERT INTO {t} SELECT {VALUES} FROM generate_series(4, 5) k(i)" for t in _both()),
            *(f"UPDATE {t} SET n = -0.000000001 WHERE id = 2" for t in FORMS.values()),
            "INSERT INTO large VALUES (2, 2)",
        )
        for name in FORMS:
            pgsub.wait(name)
        database.run("INSERT INTO large VALUES (3, 0.0000000001)")
        for name, table in FORMS.items():
            wait_until(partial(_is_suspended, pgsub, name), 120, pgsub.log_tail)
            site.facts[name, "large"] = _large(pgsub, name)
            site.facts[name, "rows"] = pgsub.rows(name, "large", ["id"])
            site.facts[name] = sorted(pgsub.rows(name, "kinds", ["id", *COLUMNS]))
            with database.connect() as conn:
                conn.execute("SET TimeZone = 'UTC'")
                rows = conn.execute(f"SELECT id, {shown} FROM {table} ORDER BY id").fetchall()
            site.facts["published", name] = rows
        yield site
        for name in FORMS:
            pgsub.drop(name)
    finally:
        database.drop()


def _both() -> list[str]:
    return [f"{table} (id, {', '.join(COLUMNS)})" for table in FORMS.values()]


def _large(pgsub: Pgsub, name: str) -> dict[str, Any]:
    rels = pgsub.status("pg_subscription_rel")
    return next(rel for rel in rels if (rel["lake_schema"], rel["lake_table"]) == (name, "large"))


def _is_suspended(pgsub: Pgsub, name: str) -> bool:
    return bool(_large(pgsub, name)["suspend_time"])


def _tables(lake_schema: str, table: str) -> dict[str, dict[str, Any]]:
    kinds = {name: {"type": type} for name, (_, type, _) in COLUMNS.items()}
    large = {"columns": {"n": {"type": "decimal(38,9)"}}, "on_error": "suspend"}
    return {
        f"{SCHEMA}.{table}": {"to": f"{lake_schema}.kinds", "columns": kinds},
        f"{SCHEMA}.large": {"to": f"{lake_schema}.large", **large},
    }


@pytest.mark.parametrize("name", FORMS)
def test_copy_and_stream_have_the_publisher_s_values(site: Site, name: str) -> None:
    rows = [tuple(map(bytes_of, row)) for row in site.facts["published", name]]
    assert [tuple(map(bytes_of, row)) for row in site.facts[name]] == rows
    assert len(rows) == 5


@pytest.mark.parametrize("name", FORMS)
def test_the_lake_has_the_types(site: Site, name: str) -> None:
    schema = site.pgsub.arrow(name, "kinds").schema
    found = {column: schema.field(column).type for column in TYPES}
    texts = {column: pa.string() for column, type in found.items() if type == pa.large_string()}
    assert {**found, **texts} == TYPES


@pytest.mark.parametrize("name", FORMS)
def test_a_value_that_would_be_rounded_suspends_its_table(site: Site, name: str) -> None:
    suspended = site.facts[name, "large"]
    assert suspended["suspend_sqlstate"] == "22003"
    assert "cannot hold a value the publisher sent" in suspended["suspend_error"]
    assert sorted(site.facts[name, "rows"]) == [(1,), (2,)]


def bytes_of(value: Any) -> Any:
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value
