"""Rows that somebody else wrote, with ``track_commit_timestamp = on``: 013_partition, 030_origin.

PostgreSQL knows two kinds of others: who writes locally, and another subscription. Here the first
writes with Spark. Two subscriptions never write to one lake table at a time, so the second is one
whose table was left behind and is adopted.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fix_publisher import Database, requested_publisher
from tests.integration.flow import Flow
from tests.servers import every_version
from tests.twin import native_rows
from tests.waiting import wait_until

UPDATED = "confl_update_origin_differs"
DELETED = "confl_delete_origin_differs"


@pytest.fixture(scope="module", params=every_version(18, since=16))
def flow(
    request: pytest.FixtureRequest,
    make_flow: Callable[..., Flow],
    make_database: Callable[..., Database],
) -> Flow:
    server = requested_publisher(request)
    flow = make_flow(server, f"t_others_{request.param}")
    node_c = make_database(server, f"{flow.name}_c", schema=flow.name)
    with flow.pgsub.settings(track_commit_timestamp="on"):
        name = _who_writes_locally(flow)
        _another_subscription(flow, name, node_c)
    return flow


def _who_writes_locally(flow: Flow) -> str:
    flow.both(
        "CREATE TABLE tab (a int PRIMARY KEY, b text)",
        "CREATE TABLE tab_full (a int, b text)",
        "ALTER TABLE tab_full REPLICA IDENTITY FULL",
    )
    flow.pub.run(
        "CREATE PUBLICATION pub_a FOR TABLE tab, tab_full",
        "INSERT INTO tab VALUES (0, 'A')",
    )
    name = flow.subscribe("local", ["pub_a"])
    flow.catch_up()
    flow.pub.run("UPDATE tab SET b = 'A again' WHERE a = 0")
    flow.catch_up()
    # To PostgreSQL a copied row is that of another origin, its synchronisation's.
    flow.facts["copied"] = _counted(flow, name, copied=1)
    flow.pub.run(
        "INSERT INTO tab SELECT n, 'A' FROM generate_series(1, 9) n",
        "INSERT INTO tab_full SELECT n, 'A' FROM generate_series(1, 4) n",
        "UPDATE tab SET b = 'A again' WHERE a IN (0, 1, 2)",
        "DELETE FROM tab_full WHERE a = 1",
    )
    flow.checkpoint("nobody else", "tab", "tab_full")
    flow.facts["nobody else"] = _counted(flow, name, copied=1)
    _locally(flow, "DELETE FROM tab WHERE a = 3")
    _locally(flow, "INSERT INTO tab VALUES (3, 'local')")
    _locally(flow, "UPDATE tab SET b = 'local' WHERE a IN (4, 5)")
    _locally(flow, "UPDATE tab_full SET b = 'A' WHERE a = 2")
    flow.pub.run(
        "UPDATE tab SET b = 'A last' WHERE a IN (1, 3, 4)",
        "DELETE FROM tab WHERE a IN (5, 6)",
        "UPDATE tab_full SET b = 'A last' WHERE a IN (2, 3)",
    )
    flow.checkpoint("local", "tab", "tab_full")
    flow.facts["local"] = _counted(flow, name, copied=1)
    flow.facts["log"] = flow.pgsub.log_tail(200)
    flow.pub.run("UPDATE tab SET b = 'A for ever' WHERE a IN (3, 4)")
    flow.checkpoint("ours again", "tab")
    flow.facts["ours again"] = _counted(flow, name, copied=1)
    return name


def _another_subscription(flow: Flow, before: str, other: Database) -> None:
    """The rows of A stay; C's publisher has them too, and changes them.

    The twin has both for a moment: the origin of a dropped one passes its number on, and with it
    its rows.
    """
    other.run(
        "CREATE TABLE tab (a int PRIMARY KEY, b text)", "CREATE PUBLICATION pub_c FOR TABLE tab"
    )
    other.run("INSERT INTO tab SELECT n, 'A' FROM generate_series(1, 9) n")
    name = f"{flow.name}_c"
    flow.twin.subscribe(flow.sub, other, f"{name}_native", ["pub_c"], copy_data="false")
    flow.drop(before)
    adopted = {f"{flow.name}.tab": {"adopt": True}}
    flow.pgsub.create(name, other.dsn, ["pub_c"], tables=adopted, copy_data=False)
    other.run(
        "INSERT INTO tab VALUES (20, 'C')",
        "UPDATE tab SET b = 'C' WHERE a IN (3, 7, 20)",
        "DELETE FROM tab WHERE a = 8",
    )
    flow.pgsub.wait(name)
    flow.twin.wait_caught_up(other, f"{name}_native")
    flow.facts["rows of C"] = (
        native_rows(flow.sub, "tab"),
        flow.pgsub.rows(flow.name, "tab", ["a", "b"]),
    )
    flow.facts["C"] = _counted(flow, name)
    flow.pgsub.drop(name)
    flow.sub.execute(f'DROP SUBSCRIPTION "{name}_native"')


def _locally(flow: Flow, statement: str) -> None:
    flow.sub.run(statement)
    verb, word, rest = statement.split(" ", 2)
    into = f"{verb} {{t}}.{word} {rest}" if verb == "UPDATE" else f"{verb} {word} {{t}}.{rest}"
    flow.lake(into)


def _counted(flow: Flow, name: str, copied: int = 0) -> list[tuple[int, int]]:
    """Updates and deletes of somebody else's rows: the twin's but for copied rows, and ours."""
    query = f"SELECT {UPDATED}, {DELETED} FROM pg_stat_subscription_stats WHERE subname = %s"

    def native() -> tuple[int, int]:
        [(updates, deletes)] = flow.sub.execute(query, (f"{name}_native",))
        return updates - copied, deletes

    def ours() -> tuple[int, int]:
        rows = flow.pgsub.status("pg_stat_subscription_stats")
        return next((row[UPDATED], row[DELETED]) for row in rows if row["subname"] == name)

    found = ours()
    # PostgreSQL's workers report their counters when they are idle.
    wait_until(lambda: native() == found, 20, lambda: f"{native()}, ours {found}")
    return [native(), found]


def _told(flow: Flow) -> list[str]:
    return [
        line.partition("conflict detected")[2]
        for line in flow.facts["log"].splitlines()
        if "origin_differs" in line and flow.name in line
    ]


def test_copied_rows_are_the_subscription_s_own(flow: Flow) -> None:
    assert flow.facts["copied"] == [(0, 0), (0, 0)]


def test_rows_that_nobody_else_touched_are_no_conflict(flow: Flow) -> None:
    assert flow.facts["nobody else"] == [(0, 0), (0, 0)]
    assert (1, "A again") in flow.same("nobody else", "tab")


def test_s_013_22_an_update_of_a_local_row_is_told_of_and_applied(flow: Flow) -> None:
    native, ours = flow.facts["local"]
    assert ours == native == (3, 1)
    rows = flow.same("local", "tab")
    assert (3, "A last") in rows
    assert (4, "A last") in rows
    flow.same("local", "tab_full")
    assert _told(flow) == [
        f' on relation "{flow.name}.tab": conflict=update_origin_differs',
        f' on relation "{flow.name}.tab": conflict=delete_origin_differs',
        f' on relation "{flow.name}.tab_full": conflict=update_origin_differs',
    ]


def test_what_was_updated_is_ours_again(flow: Flow) -> None:
    assert flow.facts["ours again"] == flow.facts["local"]
    assert (3, "A for ever") in flow.same("ours again", "tab")


def test_s_030_4_an_update_of_another_origin_s_row(flow: Flow) -> None:
    native, ours = flow.facts["rows of C"]
    assert ours == native
    assert (7, "C") in ours
    assert [updates for updates, _ in flow.facts["C"]] == [2, 2]


def test_s_030_5_a_delete_of_another_origin_s_row(flow: Flow) -> None:
    assert not any(a == 8 for a, _ in flow.facts["rows of C"][1])
    assert [deletes for _, deletes in flow.facts["C"]] == [1, 1]
