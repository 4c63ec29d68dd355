"""Spark, DuckDB and pyiceberg read what is written, and read the same as the publisher.

The tables have been through everything a stream does to one: a copy, inserts, updates and deletes
(so that position deletes lie beside the data), changed keys, whole rows, TRUNCATE and refill.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from catalog.pg_lsn import LSN
from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.docs.pages import DOCS, blocks
from tests.fix_publisher import Database, new_database
from tests.harness import Pgsub, python_rows
from tests.integration.readers import EXTENSIONS, READERS
from tests.twin import native_rows
from tests.waiting import wait_until

SCHEMA = "readers"
SUBSCRIPTION = "readers_sub"
TABLES = ("changed", "refilled", "keyless")


@pytest.fixture(scope="module")
def database(publisher: EmbeddedPublisher, pgsub: Pgsub) -> Iterator[Database]:
    made = new_database(publisher, SCHEMA, schema=SCHEMA)
    made.run(
        "CREATE TABLE changed (id int PRIMARY KEY, name text, price numeric(10,2), at timestamptz,"
        " day date, sizes int[], ok boolean)",
        "INSERT INTO changed SELECT i, 'row ' || i, i / 4.0, timestamptz '2026-01-01 12:00:00+01'"
        " + i * interval '1 hour', date '2026-01-01' + i, ARRAY[i, NULL, -i], i % 2 = 0"
        " FROM generate_series(1, 200) i",
        "CREATE TABLE refilled (id int PRIMARY KEY, name text)",
        "INSERT INTO refilled SELECT i, 'first' FROM generate_series(1, 50) i",
        "CREATE TABLE keyless (a int, b text)",
        "ALTER TABLE keyless REPLICA IDENTITY FULL",
        "INSERT INTO keyless SELECT i % 3, NULL FROM generate_series(1, 30) i",
        f"CREATE PUBLICATION pub_{SCHEMA} FOR TABLES IN SCHEMA {SCHEMA}",
    )
    pgsub.create(SUBSCRIPTION, made.dsn, [f"pub_{SCHEMA}"])
    pgsub.wait(SUBSCRIPTION)
    made.run(
        "INSERT INTO changed (id, name) VALUES (1000, 'é 🦆 \" \\ '), (1001, '')",
        "UPDATE changed SET name = upper(name), sizes = NULL WHERE id % 10 = 0",
        "DELETE FROM changed WHERE id BETWEEN 20 AND 40",
        "UPDATE changed SET id = id + 5000 WHERE id > 190 AND id < 1000",
        "UPDATE changed SET price = NULL, at = '1969-12-31 23:59:59.999999+00' WHERE id = 50",
        "UPDATE keyless SET b = 'moved' WHERE ctid IN (SELECT ctid FROM keyless LIMIT 4)",
        "DELETE FROM keyless WHERE ctid IN (SELECT ctid FROM keyless WHERE a = 1 LIMIT 2)",
    )
    pgsub.wait(SUBSCRIPTION)
    made.execute(
        "BEGIN; TRUNCATE refilled; INSERT INTO refilled VALUES (1, 'second'), (60, NULL); COMMIT"
    )
    pgsub.wait(SUBSCRIPTION)
    yield made
    pgsub.drop(SUBSCRIPTION)
    made.drop()


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("table", TABLES)
def test_every_reader_sees_the_publishers_rows(
    pgsub: Pgsub, database: Database, table: str, reader: str
) -> None:
    assert python_rows(READERS[reader](pgsub, SCHEMA, table)) == native_rows(database, table)


def test_the_page_s_examples_do_what_it_says(pgsub: Pgsub, database: Database) -> None:
    seen: dict[str, Any] = {}
    loads = "\n    ".join(
        f"connection.execute({f'LOAD {path.as_posix()!r}'!r})" for path in EXTENSIONS
    )
    for example in blocks(DOCS / "reading.md", "python"):
        code = (
            example.replace("/var/lib/pgsub", str(pgsub.data_dir))
            .replace('("public", "orders")', repr((SCHEMA, "changed")))
            .replace('connection.execute("LOAD iceberg")', loads)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pyiceberg's and SQLAlchemy's own
            exec(code, seen)  # noqa: S102 - the page's own code
    rows = native_rows(database, "changed")
    assert python_rows(seen["orders"]) == rows
    assert python_rows(seen["read"]) == rows


def test_the_tables_hold_position_deletes(pgsub: Pgsub, database: Database) -> None:
    """Else the readers would have had nothing to prove."""
    del database
    files = pgsub.iceberg_table(SCHEMA, "changed").inspect.delete_files()
    assert files.num_rows > 0


@pytest.fixture(scope="module")
def shown(pgsub: Pgsub, database: Database) -> dict[str, object]:
    """The subscription's row as ``pgsub sql`` shows it: what it wrote a moment before."""
    del database
    (row,) = pgsub.sql(
        f"SELECT * FROM lake.pg_catalog.pg_subscription WHERE subname = '{SUBSCRIPTION}'"
    )
    (stored,) = [row for row in pgsub.status("pg_subscription") if row["subname"] == SUBSCRIPTION]
    assert stored | {"max_flush_lsn": row["max_flush_lsn"]} == row
    return row


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_sees_the_status_tables(
    pgsub: Pgsub, shown: dict[str, object], reader: str
) -> None:
    rows = READERS[reader](pgsub, "pg_catalog", "pg_subscription").to_pylist()
    (read,) = [row for row in rows if row["subname"] == SUBSCRIPTION]
    position = read["max_flush_lsn"]  # moves on with the publisher, and is written anew with it
    assert read == shown | {"max_flush_lsn": position}
    assert LSN.parse(position) >= LSN.parse(str(shown["max_flush_lsn"]))


def lake_lsn(rows: list[dict[str, object]]) -> object:
    (found,) = [
        row["lake_lsn"] for row in rows if row["nspname"] == SCHEMA and row["relname"] == "changed"
    ]
    return found


def test_the_launcher_writes_the_status_tables_by_itself(pgsub: Pgsub, database: Database) -> None:
    view = "pg_subscription_rel"
    pgsub.sql(f"SELECT * FROM lake.pg_catalog.{view}")
    with pgsub.settings(status_tables_interval="1s"):
        database.execute("UPDATE changed SET name = 'again' WHERE id = 1")
        pgsub.wait(SUBSCRIPTION)
        stored = lake_lsn(pgsub.status(view))
        wait_until(
            lambda: lake_lsn(pgsub.arrow("pg_catalog", view).to_pylist()) == stored,
            120,
            pgsub.log_tail,
        )
