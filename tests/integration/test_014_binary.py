"""PostgreSQL's 014_binary: rows and copies in binary form.

S-014-4 is none. S-014-7 differs: a narrower column takes what fits (docs/fidelity.md). Publishers
before 16 are asked for a copy in text, so that nothing of a copy fails there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.fix_publisher import requested_publisher
from tests.integration.flow import Flow
from tests.servers import every_version
from tests.twin import native_state
from tests.waiting import wait_until

NO_SEND = "no binary output function available for type"

FUNCTIONS = (
    "CREATE FUNCTION myvarcharsend(myvarchar) RETURNS bytea LANGUAGE internal"
    " STABLE PARALLEL SAFE STRICT AS 'varcharsend'",
    "CREATE FUNCTION myvarcharrecv(internal, oid, integer) RETURNS myvarchar LANGUAGE internal"
    " STABLE PARALLEL SAFE STRICT AS 'varcharrecv'",
    "ALTER TYPE myvarchar SET (send = myvarcharsend, receive = myvarcharrecv)",
)


@pytest.fixture(scope="module", params=every_version(18))
def flow(request: pytest.FixtureRequest, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(requested_publisher(request), f"t014_{request.param}")
    flow.facts["copies"] = "binary" if request.param >= 16 else "text"
    _rows(flow)
    _off_and_on(flow)
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


def _off_and_on(flow: Flow) -> None:
    """Ours asks for binary form also where it need not, if all types are known."""
    name = flow.subscriptions[0]
    always = flow.facts["copies"] == "binary"
    streams = "SELECT query ~ 'binary .true' FROM pg_stat_activity WHERE application_name = %s"
    for label, value, row in (("off", False, "{2,3,1}"), ("on again", True, "{2,1,3}")):
        flow.alter(name, f"SET (binary = {value})")
        for each, on in ((name, value or always), (f"{name}_native", value)):
            asked = partial(flow.pub.execute, f"{streams} AND query ~ '^START_REPL'", (each,))
            wait_until(partial(lambda ask, on: ask() == [(on,)], asked, on), 60, asked)
        flow.pub.run(
            f"INSERT INTO test_arrays VALUES ('{row}', '{{1.2, NULL}}', '{{two, three}}')",
            "UPDATE test_numerical SET b = b + 1.5, d = NULL WHERE a IN (1, 3)",
        )
        flow.checkpoint(label, "test_arrays", "test_numerical")


def _type_without_send_function(flow: Flow) -> None:
    """A copy in binary form fails on both sides until there is one."""
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
    flow.alter(name, "REFRESH PUBLICATION")
    if flow.facts["copies"] == "binary":
        flow.wait_failing(name, "sync_error_count")
        ours = flow.states(name)["test_myvarchar"]
        flow.facts["state"] = ours, native_state(flow.sub, "test_myvarchar")
        flow.facts["log"] = flow.pgsub.log_file.read_text(errors="replace")
    flow.both(*FUNCTIONS)
    flow.checkpoint("send function", "test_myvarchar")
    flow.pub.run("INSERT INTO test_myvarchar VALUES ('b')")
    flow.checkpoint("sent", "test_myvarchar")


def _text(flow: Flow) -> None:
    """Into a narrower column; what binary form does there, ours does not mind."""
    flow.drop(flow.subscriptions[0])
    flow.both("CREATE TABLE test_mismatching (a int)")
    flow.lake("CREATE TABLE {t}.test_mismatching (a int)")
    flow.pub.run("ALTER TABLE test_mismatching ALTER a TYPE bigint")
    flow.pub.run("INSERT INTO test_mismatching VALUES (1), (2)")
    flow.pub.run("CREATE PUBLICATION tpub2 FOR TABLE test_mismatching")
    adopted = {"test_mismatching": {"adopt": True}}
    name = flow.subscribe("narrow", ["tpub2"], binary=True, tables=adopted)
    flow.pgsub.wait(name)
    flow.facts["narrow"] = flow.pgsub.rows(*flow.qualified("test_mismatching"))
    if flow.facts["copies"] == "binary":
        failed = "SELECT sync_error_count FROM pg_stat_subscription_stats WHERE subname = %s"
        native = (f"{name}_native",)
        wait_until(lambda: flow.sub.value(failed, native) > 1, 60, flow.twin.log_tail)
    flow.alter(name, "SET (binary = false)")
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


def test_s_014_5_binary_is_turned_off_and_on_again(flow: Flow) -> None:
    """H-37: the flow has seen how each walsender was asked."""
    for label, row in (("off", [2, 3, 1]), ("on again", [2, 1, 3])):
        assert row in [a for a, _, _ in flow.same(label, "test_arrays")]
        assert len(flow.same(label, "test_numerical")) == 4


def test_s_014_6_a_type_without_a_send_function(flow: Flow) -> None:
    if flow.facts["copies"] == "binary":
        assert flow.facts["state"] == ("d", "d")
        assert f"{NO_SEND} {flow.name}.myvarchar" in flow.facts["log"]
    assert flow.same("send function", "test_myvarchar") == [("a",)]
    assert sorted(flow.same("sent", "test_myvarchar")) == [("a",), ("b",)]


def test_s_014_7_an_integer_of_another_width_is_an_error_natively_only(flow: Flow) -> None:
    """The flow has seen the twin fail, twice; a lake column takes what it can hold."""
    assert sorted(flow.facts["narrow"]) == [(1,), (2,)]


def test_s_014_8_text_takes_another_integer_type(flow: Flow) -> None:
    assert sorted(flow.same("text", "test_mismatching")) == [(1,), (2,)]
