"""PostgreSQL's 022_twophase_cascade: what is prepared on the first of three servers.

The server in the middle is PostgreSQL's and subscribes with ``two_phase``; ours, and the twin, are
the last. A small ``logical_decoding_work_mem`` has large transactions sent before their PREPARE.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.fix_publisher import Database, new_database
from tests.harness import Pgsub
from tests.integration.flow import Flow, first
from tests.integration.prepared import (
    MOST,
    a_flow,
    await_enabled,
    await_prepared,
    natives,
    ours,
)
from tests.servers import every_version, programs
from tests.waiting import wait_until

SLOT = "SELECT pg_create_logical_replication_slot('peek', 'pgoutput')"
PEEK = (
    "SELECT chr(get_byte(data, 0)) FROM pg_logical_slot_peek_binary_changes('peek', NULL, NULL,"
    " 'proto_version', '1', 'publication_names', 'pub')"
)

SMALL: Final = {"logical_decoding_work_mem": "64kB"}
LARGE: Final = (
    "INSERT INTO test_tab SELECT i, sha256(i::text::bytea) FROM generate_series(3, 1000) i;"
    " UPDATE test_tab SET b = sha256(b) WHERE a % 2 = 0; DELETE FROM test_tab WHERE a % 3 = 0"
)


@pytest.fixture(scope="module", params=every_version(18, since=15))
def flow(request: pytest.FixtureRequest, pgsub: Pgsub) -> Iterator[Flow]:
    version = request.param
    server = EmbeddedPublisher(version, conf={**MOST, **SMALL}, programs=programs(version))
    with server, a_flow(pgsub, version, "t022", **SMALL) as flow:
        origin = new_database(server, flow.name, schema=flow.name)
        for each in (origin, flow.pub, flow.sub):
            each.run(
                "CREATE TABLE tab_full (a int PRIMARY KEY)",
                "CREATE TABLE test_tab (a int PRIMARY KEY, b bytea)",
            )
        origin.run("CREATE PUBLICATION pub_a FOR TABLE tab_full, test_tab")
        flow.pub.run("CREATE PUBLICATION pub FOR TABLE tab_full, test_tab")
        flow.pub.execute(SLOT)
        flow.pub.run(
            f"CREATE SUBSCRIPTION middle CONNECTION '{origin.dsn}' PUBLICATION pub_a"
            " WITH (two_phase = on, streaming = on)"
        )
        _await_middle(flow)
        name = flow.subscribe("sub", ["pub"], two_phase=True, streaming="on")
        await_enabled(flow, name)
        _play(flow, origin, name)
        _play_streamed(flow, origin, name)
        flow.drop(name)
        flow.pub.run("DROP SUBSCRIPTION middle")
        yield flow


def _await_middle(flow: Flow) -> None:
    query = "SELECT subtwophasestate FROM pg_subscription WHERE subname = 'middle'"
    wait_until(lambda: flow.pub.value(query) == "e", 60, "the server in the middle is enabled")


def _play(flow: Flow, origin: Database, name: str) -> None:
    def through(label: str, prepared: str, end: str) -> None:
        _through(flow, origin, name, "tab_full", label, prepared, end)

    through("commit", "INSERT INTO tab_full VALUES (11)", "COMMIT")
    flow.facts["messages"] = [kind for (kind,) in flow.pub.execute(PEEK)]
    through("rollback", "INSERT INTO tab_full VALUES (12)", "ROLLBACK")
    nested = (
        "INSERT INTO tab_full VALUES (21); SAVEPOINT s; INSERT INTO tab_full VALUES (22);"
        " ROLLBACK TO SAVEPOINT s"
    )
    through("nested", nested, "COMMIT")


def _play_streamed(flow: Flow, origin: Database, name: str) -> None:
    origin.run("INSERT INTO test_tab VALUES (1, 'foo'), (2, 'bar')")
    _through(flow, origin, name, "test_tab", "streamed", LARGE, "COMMIT")
    origin.run("DELETE FROM test_tab WHERE a > 2")
    nested = (
        f"INSERT INTO test_tab VALUES (9999, 'foobar'); SAVEPOINT s; {LARGE}"
        "; ROLLBACK TO SAVEPOINT s"
    )
    _through(flow, origin, name, "test_tab", "streamed in part", nested, "COMMIT")
    flow.facts["streamed"] = [_streamed(server) for server in (origin, flow.pub)]
    flow.facts["left"] = (ours(flow, name), natives(flow, name))


def _streamed(server: Database) -> int:
    """How many transactions the server has sent while they ran, to all."""
    counted = "SELECT sum(stream_txns)::int FROM pg_stat_replication_slots"
    return int(wait_until(lambda: server.value(counted), 60, "the slots are counted"))


def _through(
    flow: Flow, origin: Database, name: str, table: str, label: str, prepared: str, end: str
) -> None:
    """Prepare on the first server; afterwards, end it there."""
    origin.execute(f"BEGIN; {prepared}; PREPARE TRANSACTION '{label}'")
    flow.facts[label] = await_prepared(flow, name, 1)
    flow.record(f"{label}, prepared", table)
    origin.run(f"{end} PREPARED '{label}'")
    await_prepared(flow, name, 0)
    _pass_on(flow, origin)
    flow.checkpoint(label, table)


def _pass_on(flow: Flow, origin: Database) -> None:
    """Until the server in the middle has all that the first has committed."""
    flow.twin.wait_caught_up(origin, "middle")


def test_s_022_1_prepared_and_committed_through_the_chain(flow: Flow) -> None:
    assert flow.same("commit, prepared", "tab_full") == []
    (row,) = flow.facts["commit"]
    assert row["remote_gid"].startswith("pg_gid_")
    assert flow.same("commit", "tab_full") == [(11,)]


def test_s_022_2_prepared_and_rolled_back_through_the_chain(flow: Flow) -> None:
    assert flow.same("rollback", "tab_full") == [(11,)]


def test_s_022_3_a_savepoint_inside_was_rolled_back(flow: Flow) -> None:
    assert first(flow.same("nested, prepared", "tab_full")) == [11]
    assert first(flow.same("nested", "tab_full")) == [11, 21]


def test_s_022_4_streamed_through_the_chain(flow: Flow) -> None:
    assert min(flow.facts["streamed"]) > 0, "the transactions came at their PREPARE"
    assert first(flow.same("streamed, prepared", "test_tab")) == [1, 2]
    assert first(flow.same("streamed", "test_tab")) == [a for a in range(1, 1001) if a % 3]


def test_s_022_5_the_large_part_was_rolled_back(flow: Flow) -> None:
    rows = flow.same("streamed in part", "test_tab")
    assert first(rows) == [1, 2, 9999]
    assert [row[1] for row in rows].count(b"foobar") == 1
    assert flow.facts["left"] == ([], [])


def test_s_022_6_the_middle_says_where_the_transaction_came_from(flow: Flow) -> None:
    assert "O" in flow.facts["messages"]
    assert first(flow.same("commit", "tab_full")) == [11]
