"""PostgreSQL's 030_origin, one way: ``origin = none`` does not forward what came from elsewhere.

Left out: S-030-1 (nothing is published here), -7 and -8 (REFRESH); test_track_commit_timestamp.py
has -4 and -5.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from subscriber.publisher import EmbeddedPublisher
from tests.integration.flow import Flow
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def flow(publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(publisher, "t030")
    flow.both("CREATE TABLE tab (a int PRIMARY KEY)")
    flow.pub.run("CREATE PUBLICATION tap_pub_b FOR TABLE tab", "INSERT INTO tab VALUES (1)")
    flow.subscribe("a_b", ["tap_pub_b"], origin="none")
    flow.checkpoint("copy", "tab")
    third = _third_node(flow)
    try:
        _rows_of_a_third_node(flow)
        _warnings(flow)
    finally:
        flow.pub.execute("DROP SUBSCRIPTION b_c")
        third.close()
    return flow


def _third_node(flow: Flow) -> Flow:
    """Node C is a database on the twin's server; the publisher itself subscribes to it."""
    third = Flow(flow.pgsub, flow.twin, flow.twin.server, "t030_c")
    third.pub.run(
        "CREATE SCHEMA t030",
        "CREATE TABLE t030.tab (a int PRIMARY KEY)",
        "CREATE TABLE t030.tab_main (a int PRIMARY KEY)",
        "CREATE TABLE t030.tab_part2 (a int PRIMARY KEY)",
        "CREATE PUBLICATION tap_pub_c FOR ALL TABLES",
        "INSERT INTO t030.tab VALUES (32)",
    )
    flow.pub.run(
        "CREATE TABLE tab_main (a int PRIMARY KEY) PARTITION BY RANGE (a)",
        "CREATE TABLE tab_part1 PARTITION OF tab_main FOR VALUES FROM (0) TO (5)",
        "CREATE TABLE tab_part2 PARTITION OF tab_main FOR VALUES FROM (5) TO (10)",
        "CREATE PUBLICATION tap_pub_root FOR TABLE tab_main"
        " WITH (publish_via_partition_root = true)",
        "CREATE PUBLICATION tap_pub_leaf FOR TABLE tab_part1",
    )
    flow.pub.execute(
        f"CREATE SUBSCRIPTION b_c CONNECTION '{third.pub.dsn}' PUBLICATION tap_pub_c"
        " WITH (streaming = on, slot_name = 't030_b_c')"
    )
    return third


def _rows_of_a_third_node(flow: Flow) -> None:
    wait_until(lambda: flow.pub.value("SELECT count(*) FROM tab") == 2, 60, "B has C's row")
    flow.pub.run("INSERT INTO tab VALUES (2)")
    flow.checkpoint("third node", "tab")
    flow.facts["on b"] = [row[0] for row in flow.pub.execute("SELECT a FROM tab ORDER BY a")]


def _warnings(flow: Flow) -> None:
    for label, publication in (
        ("table", "tap_pub_b"),
        ("partition", "tap_pub_root"),
        ("ancestor", "tap_pub_leaf"),
    ):
        name = f"t030_{label}"
        target = {"t030.tab": {"to": "t030.tab_again"}} if label == "table" else None
        done = flow.pgsub.create(
            name, flow.pub.dsn, [publication], tables=target, origin="none", copy_data=True
        )
        flow.facts[label] = done.stdout + done.stderr
        flow.pgsub.wait(name)
        flow.pgsub.drop(name)
    flow.facts["again"] = flow.pgsub.rows("t030", "tab_again")


def test_s_030_2_rows_from_a_third_node_are_not_forwarded(flow: Flow) -> None:
    """H-39."""
    assert flow.facts["on b"] == [1, 2, 32]
    assert flow.same("third node", "tab") == [(1,), (2,)]


@pytest.mark.parametrize("label", ["table", "partition", "ancestor"])
def test_s_030_6_9_10_a_copy_that_may_hold_others_rows_is_warned_of(flow: Flow, label: str) -> None:
    """H-39."""
    assert "WARNING" in flow.facts[label]
    assert f"t030_{label}" in flow.facts[label]


def test_s_030_6_and_still_copied(flow: Flow) -> None:
    assert flow.facts["again"] == [(1,), (2,), (32,)]
