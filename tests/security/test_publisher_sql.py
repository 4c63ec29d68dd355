"""Names in what is sent to the publisher: as what they are, never as SQL."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from catalog.namespace import escape_identifier, quote_identifier, quote_literal
from catalog.pg_lsn import LSN
from config.load import parse
from subscriber.commands.create_drop import new_row
from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.security.lexers import PIECES, POSTGRES, REPLICATION, hostile, same_but_for_names, tokens
from workers.publisher.connection import WalReceiverConn
from workers.publisher.copy_statement import copy_statement
from workers.publisher.fingerprint import PublishedActions, fetch_fingerprints
from workers.publisher.publications import (
    fetch_table_list,
    missing_publications,
    tables_of_other_origins,
)
from workers.publisher.remote_table import (
    ColumnType,
    Leaf,
    RemoteColumn,
    RemoteTable,
    fetch_relids,
    fetch_remote_table_info,
)
from workers.publisher.replica_identity import fetch_identities
from workers.publisher.replication_slots import fetch_slot
from workers.publisher.sync_slot import free_slot_name
from workers.publisher.table_shape import fetch_shape
from workers.stream.start import start_options

Names = list[str]
FOUR = st.lists(hostile(), min_size=4, max_size=4, unique=True)
WORST = ["\\", "'", '"', "\\'; DROP TABLE x; --"]


class SaidError(Exception):
    """What a connection was asked."""


class Listening:
    """In a connection's place; the statement comes back as an error."""

    def __init__(self, server_version: int) -> None:
        self.server_version = server_version

    def exec(self, sql: str) -> list[tuple[str | None, ...]]:
        raise SaidError(sql)


def asked(version: int, read: Callable[[Any], object]) -> str:
    with pytest.raises(SaidError) as said:
        read(Listening(version))
    return str(said.value)


QUERIES: Mapping[str, Callable[[Any, Names], object]] = {
    "publications": missing_publications,
    "tables": fetch_table_list,
    "other origins": tables_of_other_origins,
    "fingerprints": fetch_fingerprints,
    "identities": lambda conn, n: fetch_identities(conn, n, [7, 8]),
    "relation": lambda conn, n: fetch_remote_table_info(conn, n[0], n[1], n[2:]),
    "relids": lambda conn, n: fetch_relids(conn, [(n[0], n[1]), (n[2], n[3])]),
    "shape": lambda conn, n: fetch_shape(conn, 7, n),
    "slot": lambda conn, n: fetch_slot(conn, n[0]),
    "free name": lambda conn, n: free_slot_name(conn, n[0]),
}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(names=FOUR)
@example(names=WORST)
@example(names=[":publications", ":relid", ":schema", "$$"])
def test_a_catalog_query_is_the_same_whatever_the_names(names: Names) -> None:
    """H-38."""
    for read in QUERIES.values():
        for version in (10, 14, 15, 18):

            def build(given: Names, read: Any = read, version: int = version) -> str:
                return asked(version, lambda conn: read(conn, given))

            same_but_for_names(build, names, POSTGRES)


INT = ColumnType(23, -1, "pg_catalog", "int4", "b")


def copied(names: Names) -> RemoteTable:
    columns = tuple(RemoteColumn(n, name, n == 1, False, INT) for n, name in enumerate(names))
    every = PublishedActions(True, True, True, True, False)
    return RemoteTable(names[0], names[1], 7, "r", "d", columns, (), every)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(names=FOUR)
@example(names=WORST)
@example(names=["a", "select", "left", "values"])
def test_a_copy_is_the_same_whatever_the_names(names: Names) -> None:
    """H-38."""
    same_but_for_names(lambda n: copy_statement(copied(n)), names, POSTGRES)

    def a_range(n: Names) -> str:
        filtered = replace(copied(n), row_filters=("(a > 1)",))
        leaf = Leaf(8, n[2], n[3], "r")
        return copy_statement(filtered, leaf=leaf, ctid_from=1, ctid_to=9)

    same_but_for_names(a_range, names, POSTGRES)


class ReplicationConn(WalReceiverConn):
    """A connection without a server."""

    def __init__(self) -> None:
        self.server_version = 18

    def is_near(self) -> bool:
        return False

    def _run(self, sql: str) -> Any:
        raise SaidError(sql)


def commanded(command: Callable[[ReplicationConn], object]) -> str:
    with pytest.raises(SaidError) as said:
        command(ReplicationConn())
    return str(said.value)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(names=FOUR)
@example(names=WORST)
def test_a_replication_command_is_the_same_whatever_the_names(names: Names) -> None:
    """H-38."""

    def start(n: Names) -> str:
        # The option holds a list of quoted names, which the plugin takes apart.
        options = {"publication_names": ",".join(map(escape_identifier, n[1:]))}
        return commanded(lambda conn: conn.start_streaming(n[0], LSN(1), options))

    same_but_for_names(start, names, REPLICATION)
    for command in (
        lambda conn, name: conn.create_slot(name, temporary=False, snapshot="nothing"),
        lambda conn, name: conn.drop_slot(name),
    ):

        def build(n: Names, command: Any = command) -> str:
            return commanded(lambda conn: command(conn, n[0]))

        same_but_for_names(build, names, REPLICATION)


def test_the_option_is_the_list_of_names() -> None:
    entry = {"connection": "host=h", "publication": WORST}
    [statement] = parse(json.dumps({"subscriptions": {"s": entry}}), "s.yaml").subscriptions
    sub = new_row(statement)
    found = tokens(start_options(sub, 18)["publication_names"], POSTGRES)
    assert [text for _, text in found] == [word for name in WORST for word in (",", name)][1:]


@pytest.mark.parametrize("conforming", ["on", "off"])
def test_postgres_reads_what_was_meant(publisher: EmbeddedPublisher, conforming: str) -> None:
    words = [word[:40] for word in PIECES] + ["".join(PIECES[:12])]
    with publisher.connect() as connection:
        for setting in ("standard_conforming_strings", "escape_string_warning"):
            connection.execute(f"SET {setting} = {conforming}".encode())
        connection.execute(b"SET backslash_quote = off")
        items = [f"{quote_literal(word)} AS {quote_identifier(word)}" for word in words]
        cursor = connection.execute(f"SELECT {', '.join(items)}".encode())
        assert [column.name for column in cursor.description or ()] == words
        assert cursor.fetchone() == tuple(words)
