"""PostgreSQL's 030_origin, one way: ``origin = none`` does not forward what came from elsewhere.

test_track_commit_timestamp.py has S-030-4 and -5.

B is the publisher; it and C subscribe to each other, with ``origin = none``, as nobody can to a
lake. What CREATE and REFRESH warn of, the twin's do as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.fix_publisher import requested_publisher
from tests.integration.flow import Flow, first
from tests.servers import every_version
from tests.twin import native_rows
from tests.waiting import wait_until

QUOTED = "tab'le"
SUBSCRIBED = ("tab", "tab_new", f'"{QUOTED}"', "tab_main", "tab_part2")
"""What B has from C."""

LEAVES = ("tab_part1", "tab_part2")
PUBLICATIONS = (
    "CREATE PUBLICATION tap_pub_b FOR TABLE tab",
    "CREATE PUBLICATION tap_pub_new FOR TABLE tab_new",
    "CREATE PUBLICATION tap_pub_root FOR TABLE tab_main WITH (publish_via_partition_root = true)",
    "CREATE PUBLICATION tap_pub_leaf FOR TABLE tab_part1",
    "CREATE PUBLICATION tap_pub_own FOR TABLE tab_own",
)
CREATED: dict[str, tuple[str, dict[str, Any]]] = {
    "partition": ("tap_pub_root", {"origin": "none"}),
    "ancestor": ("tap_pub_leaf", {"origin": "none"}),
    "own": ("tap_pub_own", {"origin": "none"}),
    "any": ("tap_pub_root", {"origin": "any"}),
    "no_copy": ("tap_pub_leaf", {"origin": "none", "copy_data": False}),
}
"""A subscription of each name, to a publication, with options."""

WARNED = (
    'WARNING:  subscription "{}" requested copy_data with origin = NONE but might copy data that'
    " had a different origin"
)


@pytest.fixture(scope="module", params=every_version(18, since=16))
def flow(request: pytest.FixtureRequest, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(requested_publisher(request), f"t030_{request.param}")
    plain = ("tab", "tab_new", "tab_own", f'"{QUOTED}"')
    flow.both(*(f"CREATE TABLE {table} (a int PRIMARY KEY)" for table in plain))
    flow.sub.run(*(f"CREATE TABLE {each} (a int PRIMARY KEY)" for each in ("tab_main", *LEAVES)))
    flow.pub.run(
        "CREATE TABLE tab_main (a int PRIMARY KEY) PARTITION BY RANGE (a)",
        "CREATE TABLE tab_part1 PARTITION OF tab_main FOR VALUES FROM (0) TO (5)",
        "CREATE TABLE tab_part2 PARTITION OF tab_main FOR VALUES FROM (5) TO (10)",
        *PUBLICATIONS,
        "INSERT INTO tab VALUES (1)",
        "INSERT INTO tab_new VALUES (1)",
    )
    flow.subscribe("a_b", ["tap_pub_b"], origin="none")
    flow.checkpoint("copy", "tab")
    third = _third_node(flow)
    try:
        _rows_of_a_third_node(flow, third)
        _warnings(flow)
    finally:
        flow.pub.execute("DROP SUBSCRIPTION b_c")
        third.pub.execute("DROP SUBSCRIPTION IF EXISTS c_b")
        third.close()
    return flow


def _third_node(flow: Flow) -> Flow:
    """Node C is a database on the twin's server."""
    third = Flow(flow.pgsub, flow.twin, flow.twin.server, f"{flow.name}_c")
    third.pub.run(
        f"CREATE SCHEMA {flow.name}",
        *(f"CREATE TABLE {flow.name}.{table} (a int PRIMARY KEY)" for table in SUBSCRIBED),
        "CREATE PUBLICATION tap_pub_c FOR ALL TABLES",
        f"INSERT INTO {flow.name}.tab VALUES (32)",
        f"INSERT INTO {flow.name}.tab_new VALUES (32)",
    )
    flow.pub.execute(
        f"CREATE SUBSCRIPTION b_c CONNECTION '{third.pub.dsn}' PUBLICATION tap_pub_c"
        f" WITH (origin = none, streaming = on, slot_name = '{flow.name}_b_c')"
    )
    return third


def _rows_of_a_third_node(flow: Flow, third: Flow) -> None:
    rows = "SELECT (SELECT count(*) FROM tab) + (SELECT count(*) FROM tab_new)"
    wait_until(lambda: flow.pub.value(rows) == 4, 60, "B has C's rows")
    third.pub.execute(
        f"CREATE SUBSCRIPTION c_b CONNECTION '{flow.pub.dsn}' PUBLICATION tap_pub_b"
        f" WITH (origin = none, copy_data = false, streaming = on, slot_name = '{flow.name}_c_b')"
    )
    flow.pub.run("INSERT INTO tab VALUES (2)")
    on_c = f"SELECT a FROM {flow.name}.tab ORDER BY a"
    wait_until(lambda: third.pub.execute(on_c) == [(2,), (32,)], 60, "C has B's row")
    third.pub.execute(f"UPDATE {flow.name}.tab SET a = 33 WHERE a = 32")
    on_b = "SELECT a FROM tab ORDER BY a"
    wait_until(lambda: flow.pub.execute(on_b)[-1] == (33,), 60, "B has what C did since")
    flow.checkpoint("third node", "tab")
    flow.facts["on b"] = [row[0] for row in flow.pub.execute(on_b)]
    flow.facts["on c"] = [row[0] for row in third.pub.execute(on_c)]


def _warnings(flow: Flow) -> None:
    name = flow.subscribe("table", ["tap_pub_new"], origin="none")
    flow.facts["table"] = flow.warnings(name)
    flow.checkpoint("still copied", "tab_new")
    flow.alter(name, "REFRESH PUBLICATION")
    flow.facts["nothing new"] = flow.warnings(name)
    flow.pub.run(f'ALTER PUBLICATION tap_pub_new ADD TABLE "{QUOTED}"')
    flow.alter(name, "REFRESH PUBLICATION")
    flow.facts["refreshed"] = flow.warnings(name)
    flow.pub.run(f'INSERT INTO "{QUOTED}" VALUES (7)')
    flow.catch_up()
    flow.facts["quoted"] = (
        flow.pgsub.rows(flow.name, QUOTED),
        native_rows(flow.sub, f'"{QUOTED}"'),
    )
    flow.drop(name)
    for base, (publication, options) in CREATED.items():
        name = flow.subscribe(base, [publication], enabled=False, **options)
        flow.facts[base] = flow.warnings(name)
        flow.drop(name)


def test_s_030_1_servers_that_subscribe_to_each_other(flow: Flow) -> None:
    """C's change came after B's row: had that gone in a circle, B would have stopped at its key."""
    assert flow.facts["on b"] == [1, 2, 33]
    assert flow.facts["on c"] == [2, 33]
    assert flow.same("third node", "tab") == [(1,), (2,)]


def test_s_030_2_rows_from_a_third_node_are_not_forwarded(flow: Flow) -> None:
    """H-39."""
    assert flow.facts["on b"] == [1, 2, 33]
    assert flow.same("third node", "tab") == [(1,), (2,)]


@pytest.mark.parametrize("base", ["table", "partition", "ancestor"])
def test_s_030_6_9_10_a_copy_that_may_hold_others_rows_is_warned_of(flow: Flow, base: str) -> None:
    """H-39."""
    ours, native = flow.facts[base]
    assert ours == native == [WARNED.format(f"{flow.name}_{base}")]


@pytest.mark.parametrize("base", ["own", "any", "no_copy"])
def test_s_030_6_9_10_where_there_are_none_nothing_is_said(flow: Flow, base: str) -> None:
    """The publisher's own table; or others' rows are wanted; or nothing is copied."""
    ours, native = flow.facts[base]
    assert ours == native == []


def test_s_030_6_and_still_copied(flow: Flow) -> None:
    assert first(flow.same("still copied", "tab_new")) == [1, 32]


def test_s_030_7_a_refresh_without_new_tables_says_nothing(flow: Flow) -> None:
    ours, native = flow.facts["nothing new"]
    assert ours == native == []


def test_s_030_8_one_that_finds_such_a_table_warns(flow: Flow) -> None:
    """H-38, H-39: whatever quotes its name has; and the table is copied."""
    ours, native = flow.facts["refreshed"]
    assert ours == native == [WARNED.format(f"{flow.name}_table")]
    ours, native = flow.facts["quoted"]
    assert ours == native == [(7,)]
