"""Names and values that try to be more than names and values, through everything."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from psycopg import sql

from catalog.namespace import quote_identifier, quote_qualified_identifier
from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.fix_publisher import Database
from tests.harness import Pgsub
from tests.security.lexers import PIECES
from tests.twin import native_rows

SCHEMA = "h'\"`${env:PATH};--\\{}%$$\n🙂"
TABLES = ("t'); DROP TABLE `x`; -- /*{0}%s", 'a.b"c\\${env:SPARK_HOME}')
KEY, VALUE = "k`'\"\\;--", "v${env:HOME}\n*/"
PUBLICATION = "p'\"\\,; --{}"
SUBSCRIPTION = "s'\"\\; -- [red]${env:HOME}"


@pytest.fixture(scope="module")
def database(publisher: EmbeddedPublisher, make_database: Callable[..., Database]) -> Database:
    database = make_database(publisher, "hostile")
    columns = f"{quote_identifier(KEY)} text, {quote_identifier(VALUE)} text"
    database.run(f"CREATE SCHEMA {quote_identifier(SCHEMA)}")
    for n, table in enumerate(TABLES):
        name = quote_qualified_identifier(SCHEMA, table)
        database.run(f"CREATE TABLE {name} ({columns}, PRIMARY KEY ({quote_identifier(KEY)}))")
        if n % 2:
            database.run(f"ALTER TABLE {name} REPLICA IDENTITY FULL")
    database.run(
        f"CREATE PUBLICATION {quote_identifier(PUBLICATION)}"
        f" FOR TABLES IN SCHEMA {quote_identifier(SCHEMA)}"
    )
    return database


def change(database: Database, statement: str, *values: tuple[str, str]) -> None:
    """One statement on each table for each pair of values."""
    with database.connect() as connection, connection.transaction():
        for table in TABLES:
            for key, value in values:
                composed = sql.SQL(statement).format(
                    t=sql.Identifier(SCHEMA, table),
                    k=sql.Identifier(KEY),
                    v=sql.Identifier(VALUE),
                    key=sql.Literal(key),
                    value=sql.Literal(value),
                )
                connection.execute(composed)


def test_hostile_names_and_values(pgsub: Pgsub, database: Database) -> None:
    pairs = [(piece, f"{piece}'); --") for piece in PIECES]
    insert = "INSERT INTO {t} ({k}, {v}) VALUES ({key}, {value})"
    change(database, insert, *pairs)

    pgsub.create(SUBSCRIPTION, database.dsn, [PUBLICATION], slot_name="hostile")
    pgsub.wait(SUBSCRIPTION)
    check(pgsub, database, len(pairs))

    change(database, insert, *((f"{key}2", value) for key, value in pairs))
    change(database, "UPDATE {t} SET {v} = {v} || {value} WHERE {k} = {key}", *pairs[::2])
    change(database, "UPDATE {t} SET {k} = {k} || {value} WHERE {k} = {key}", *pairs[1::4])
    change(database, "DELETE FROM {t} WHERE {k} = {key}", *pairs[3::4])
    pgsub.wait(SUBSCRIPTION)
    check(pgsub, database, 2 * len(pairs) - len(pairs[3::4]))

    shown = pgsub.command("status").stdout
    assert SUBSCRIPTION in shown
    pgsub.drop(SUBSCRIPTION)


def check(pgsub: Pgsub, database: Database, rows: int) -> None:
    for table in TABLES:
        theirs = native_rows(database, quote_qualified_identifier(SCHEMA, table), [KEY, VALUE])
        assert len(theirs) == rows
        assert pgsub.rows(SCHEMA, table, [KEY, VALUE]) == theirs
