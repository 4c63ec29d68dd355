"""PostgreSQL's 014_binary: rows and copies in binary form.

Left out: S-014-4 (there is none), S-014-5 (options of START_REPLICATION: tests/workers/
test_stream.py). S-014-7 differs: a narrower column takes what fits (docs/fidelity.md).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from subscriber.publisher import EmbeddedPublisher
from tests.integration.flow import Flow
from tests.waiting import wait_until

NO_SEND = "no binary output function available for type"

FUNCTIONS = (
    "CREATE FUNCTION myvarcharsend(myvarchar) RETURNS bytea LANGUAGE internal"
    " STABLE PARALLEL SAFE STRICT AS 'varcharsend'",
    "CREATE FUNCTION myvarcharrecv(internal, oid, integer) RETURNS myvarchar LANGUAGE internal"
    " STABLE PARALLEL SAFE STRICT AS 'varcharrecv'",
    "ALTER TYPE myvarchar SET (send = myvarcharsend, receive = myvarcharrecv)",
)


@pytest.fixture(scope="module")
def flow(publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(publisher, "t014")
    _rows(flow)
    _type_without_send_function(flow)
    _text(flow)
    return flow


def _rows(flow: Flow) -> None:
    flow.both(
        "CREATE TABLE test_numerical (a INTEGER PRIMARY KEY, b NUMERIC, c FLOAT, d BIGINT)",
        "CREATE TABLE test_arrays (a INTEGER[] PRIMARY KEY, b NUMERIC[], c TEXT[])",
        "CREATE TABLE test_full (a int, b numeric(9,3), c timestamptz, d int4range, e bytea)",
        "ALTER TABLE test_full REPLICA IDENTITY FULL",
    )
    flow.pub.run(
        "INSERT INTO test_numerical VALUES (1, 1.2, 1.3, 10), (2, 2.2, 2.3, 20)",
        "INSERT INTO test_arrays VALUES ('{1,2,3}', '{1.1, 1.2, 1.3}', '{one, two, three}'),"
        " ('{3,1,2}', '{1.3, 1.1, 1.2}', '{three, one, two}')",
        "INSERT INTO test_full SELECT 1, 1.5, '2024-07-01 12:00+00', '[1,5]', '\\x00ff'"
        " FROM generate_series(1, 3)",
        "CREATE PUBLICATION tpub FOR ALL TABLES",
    )
    flow.subscribe("binary", ["tpub"], binary=True)
    tables = ("test_numerical", "test_arrays", "test_full")
    flow.checkpoint("copied", *tables)
    flow.pub.run(
        "INSERT INTO test_numerical VALUES (3, 3.2, 3.3, 30), (4, 'NaN', '-Infinity', -40)",
        "INSERT INTO test_arrays VALUES ('{1,2,4}', '{1.1, NULL}', '{\"a,b\", NULL, \"\"}')",
    )
    flow.checkpoint("inserted", *tables)
    flow.pub.run(
        "UPDATE test_arrays SET b[1] = 42, c = NULL WHERE a = '{1,2,3}'",
        "UPDATE test_numerical SET b = 42, c = NULL WHERE a = 1",
        "UPDATE test_numerical SET a = 7 WHERE a = 2",
        "DELETE FROM test_arrays WHERE a = '{3,1,2}'",
        "DELETE FROM test_full WHERE ctid = '(0,1)'",
        "UPDATE test_full SET b = 2, d = 'empty' WHERE ctid = '(0,2)'",
    )
    flow.checkpoint("updated", *tables)


def _type_without_send_function(flow: Flow) -> None:
    name = flow.subscriptions[0]
    flow.both(
        "CREATE TYPE myvarchar",
        "CREATE FUNCTION myvarcharin(cstring, oid, integer) RETURNS myvarchar LANGUAGE internal"
        " IMMUTABLE PARALLEL SAFE STRICT AS 'varcharin'",
        "CREATE FUNCTION myvarcharout(myvarchar) RETURNS cstring LANGUAGE internal"
        " IMMUTABLE PARALLEL SAFE STRICT AS 'varcharout'",
        "CREATE TYPE myvarchar (input = myvarcharin, output = myvarcharout)",
        "CREATE TABLE test_myvarchar (a myvarchar)",
    )
    flow.pub.run("INSERT INTO test_myvarchar VALUES ('a')")
    flow.sub.run(f'ALTER SUBSCRIPTION "{name}_native" REFRESH PUBLICATION')
    flow.pgsub.command("refresh", name)
    wait_until(lambda: NO_SEND in flow.pgsub.log_tail(400), 120, "our copy fails")
    flow.facts["state"] = flow.states(name)["test_myvarchar"]
    flow.both(*FUNCTIONS)
    flow.checkpoint("send function", "test_myvarchar")
    flow.pub.run("INSERT INTO test_myvarchar VALUES ('b')")
    flow.checkpoint("sent", "test_myvarchar")


def _text(flow: Flow) -> None:
    flow.drop(flow.subscriptions[0])
    flow.both("CREATE TABLE test_mismatching (a int)")
    flow.pub.run("ALTER TABLE test_mismatching ALTER a TYPE bigint")
    flow.pub.run("INSERT INTO test_mismatching VALUES (1), (2)")
    flow.pub.run("CREATE PUBLICATION tpub2 FOR TABLE test_mismatching")
    flow.subscribe("text", ["tpub2"], binary=False)
    flow.checkpoint("text", "test_mismatching")


def test_s_014_1_the_initial_copy_is_binary(flow: Flow) -> None:
    assert len(flow.same("copied", "test_numerical")) == 2
    assert len(flow.same("copied", "test_arrays")) == 2
    assert len(flow.same("copied", "test_full")) == 3


def test_s_014_2_inserts(flow: Flow) -> None:
    assert len(flow.same("inserted", "test_numerical")) == 4
    assert len(flow.same("inserted", "test_arrays")) == 3


def test_s_014_3_updates_and_deletes_by_key_and_by_whole_row(flow: Flow) -> None:
    assert len(flow.same("updated", "test_numerical")) == 4
    assert len(flow.same("updated", "test_arrays")) == 2
    assert len(flow.same("updated", "test_full")) == 2


def test_s_014_6_a_type_without_a_send_function(flow: Flow) -> None:
    assert flow.facts["state"] == "d"
    assert flow.same("send function", "test_myvarchar") == [("a",)]
    assert sorted(flow.same("sent", "test_myvarchar")) == [("a",), ("b",)]


def test_s_014_8_text_takes_another_integer_type(flow: Flow) -> None:
    assert sorted(flow.same("text", "test_mismatching")) == [(1,), (2,)]
