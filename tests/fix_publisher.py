"""Publishers: one server of each embedded version for the whole run, a database for each user."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.servers import every_version, programs
from tests.waiting import wait_until

CONF = {"max_prepared_transactions": 64}
"""What a publisher of the tests has beside ``BASE_CONF``."""

_number = itertools.count(1)


class Database:
    """One database on a server. ``schema`` is what unqualified names mean on its connections."""

    def __init__(self, server: EmbeddedPublisher, name: str, schema: str = "public") -> None:
        self.server = server
        self.name = name
        self.schema = schema

    @property
    def dsn(self) -> str:
        """For whoever subscribes: search_path is the server's default."""
        return self.server.conninfo(self.name)

    def connect(self) -> psycopg.Connection:
        """An autocommit connection whose search_path is the schema."""
        return self.server.connect(self.name, options=f"-c search_path={self.schema}")

    def execute(self, statement: str, args: Any = None) -> list[tuple[Any, ...]]:
        """Run SQL (several statements: one transaction); the last result's rows."""
        with self.connect() as connection:
            cursor = connection.execute(statement.encode(), args)
            while cursor.nextset():
                pass
            return cursor.fetchall() if cursor.description else []

    def run(self, *statements: str) -> None:
        """Run each statement in a transaction of its own, on one connection."""
        with self.connect() as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def said(self, statement: str) -> list[str]:
        """Run SQL; the first line of each notice that came of it, as ``psql`` prints it."""
        said: list[str] = []
        with self.connect() as connection:
            connection.add_notice_handler(
                lambda each: said.append(f"{each.severity}:  {each.message_primary}")
            )
            connection.execute(statement.encode())
        return said

    def value(self, statement: str, args: Any = None) -> Any:
        """The first column of the first row."""
        return self.execute(statement, args)[0][0]

    def lsn(self) -> str:
        """The server's current WAL position."""
        return str(self.value("SELECT pg_current_wal_lsn()"))

    def drop(self) -> None:
        """Drop the database with what hangs on it: connections, replication slots."""
        self.server.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
            " WHERE database = %s AND active",
            (self.name,),
        )
        free = "SELECT count(*) = 0 FROM pg_replication_slots WHERE database = %s AND active"
        wait_until(
            lambda: self.server.execute(free, (self.name,))[0][0], what="the slots are inactive"
        )
        self.server.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            " WHERE database = %s",
            (self.name,),
        )
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(self.name))
        self.server.execute(drop.as_string(None))


def new_database(
    server: EmbeddedPublisher, base: str, schema: str = "public", encoding: str | None = None
) -> Database:
    """Create a database with a name that no other test uses, and its schema."""
    name = f"{re.sub('[^a-z0-9]+', '_', base.lower())[:40].strip('_')}_{next(_number)}"
    if encoding is None:
        server.create_database(name)
    else:
        create = "CREATE DATABASE {} TEMPLATE template0 ENCODING {} LOCALE 'C'"
        words = sql.SQL(create).format(sql.Identifier(name), sql.Literal(encoding))
        server.execute(words.as_string(None))
    server.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}", dbname=name)
    return Database(server, name, schema)


def type_of_its_own(schema: str) -> tuple[str, ...]:
    """Statements that make a schema and in it type ``label``, as an extension would: by functions
    of C, here those of ``text``.
    """
    functions = "LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE"
    return (
        f"CREATE SCHEMA {schema}",
        f"CREATE TYPE {schema}.label",
        f"CREATE FUNCTION {schema}.label_in(cstring) RETURNS {schema}.label {functions}"
        " AS 'textin'",
        f"CREATE FUNCTION {schema}.label_out({schema}.label) RETURNS cstring {functions}"
        " AS 'textout'",
        f"CREATE TYPE {schema}.label (input = {schema}.label_in, output = {schema}.label_out,"
        " like = pg_catalog.text)",
    )


@pytest.fixture(scope="session")
def server_of() -> Iterator[Callable[[int], EmbeddedPublisher]]:
    """``server_of(version)``: one server of each version for the whole run, started when asked for.

    Make your own database in it.
    """
    with contextlib.ExitStack() as stack:
        running: dict[int, EmbeddedPublisher] = {}

        def serve(version: int) -> EmbeddedPublisher:
            if version not in running:
                made = EmbeddedPublisher(version, conf=CONF, programs=programs(version))
                running[version] = stack.enter_context(made)
            return running[version]

        yield serve


@pytest.fixture(scope="session")
def publisher(server_of: Callable[[int], EmbeddedPublisher]) -> EmbeddedPublisher:
    """PostgreSQL 18 for the whole run."""
    return server_of(18)


@pytest.fixture
def database(publisher: EmbeddedPublisher, request: pytest.FixtureRequest) -> Iterator[Database]:
    """A database of the test's own on PostgreSQL 18."""
    made = new_database(publisher, request.node.name)
    yield made
    made.drop()


@pytest.fixture(params=every_version(18))
def each_database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """As ``database``; in ``make test-matrix`` on every version."""
    made = new_database(requested_publisher(request), request.node.name)
    yield made
    made.drop()


def requested_publisher(request: pytest.FixtureRequest) -> EmbeddedPublisher:
    """The server of the version that the requesting fixture's parameter names."""
    server: EmbeddedPublisher = request.getfixturevalue("server_of")(request.param)
    return server


@pytest.fixture(scope="module")
def make_database() -> Iterator[Callable[..., Database]]:
    """``make_database(server, base, schema="public")``, dropped after the module."""
    made: list[Database] = []

    def make(server: EmbeddedPublisher, base: str, schema: str = "public") -> Database:
        made.append(new_database(server, base, schema))
        return made[-1]

    yield make
    for database in made:
        database.drop()
