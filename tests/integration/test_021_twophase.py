"""PostgreSQL's 021_twophase: what is prepared on the publisher is prepared here, and not seen.

Left out: S-021-2, where a subscriber may not prepare; the lake has no such limit, but the disk has.
Where the suite kills its subscriber, the twin's server and our worker are killed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness import Pgsub
from tests.integration.flow import Flow, first
from tests.integration.prepared import (
    a_flow,
    await_enabled,
    await_prepared,
    crash,
    natives,
    ours,
    prepare,
    states,
)
from tests.servers import every_version
from tests.waiting import wait_until


@pytest.fixture(scope="module", params=every_version(18, since=15))
def flow(request: pytest.FixtureRequest, pgsub: Pgsub) -> Iterator[Flow]:
    with a_flow(pgsub, request.param, "t021") as flow:
        flow.both("CREATE TABLE tab_full (a int PRIMARY KEY)", "CREATE TABLE tab_copy (a int)")
        flow.pub.run(
            "INSERT INTO tab_full SELECT generate_series(1, 10)",
            "CREATE PUBLICATION pub FOR TABLE tab_full",
            "CREATE PUBLICATION pub_copy FOR TABLE tab_copy",
        )
        name = flow.subscribe("sub", ["pub"], two_phase=True)
        flow.facts["at first"] = states(flow, name)
        flow.checkpoint("copied", "tab_full")
        await_enabled(flow, name)
        _commit_and_roll_back(flow, name)
        _crashes(flow, name)
        _kinds(flow, name)
        _copy(flow)
        if request.param >= 18:
            _alter(flow)
        _drop(flow)
        _without_changes(flow)
        yield flow


def _commit_and_roll_back(flow: Flow, name: str) -> None:
    prepare(flow, "one", "INSERT INTO tab_full VALUES (11)")
    flow.facts["prepared"] = await_prepared(flow, name, 1)
    flow.record("prepared", "tab_full")
    flow.pub.run("COMMIT PREPARED 'one'")
    flow.checkpoint("committed", "tab_full")
    flow.facts["after commit"] = (ours(flow, name), natives(flow, name))
    prepare(flow, "two", "INSERT INTO tab_full VALUES (12)")
    await_prepared(flow, name, 1)
    flow.pub.run("ROLLBACK PREPARED 'two'")
    flow.checkpoint("rolled back", "tab_full")
    flow.facts["after rollback"] = (ours(flow, name), natives(flow, name))


def _crashes(flow: Flow, name: str) -> None:
    values = "INSERT INTO tab_full VALUES ({}), ({})"
    prepare(flow, "both", values.format(12, 13))
    await_prepared(flow, name, 1)
    crash(flow, publisher=True, subscribers=name)
    flow.pub.run("ROLLBACK PREPARED 'both'")
    flow.checkpoint("crash, rollback", "tab_full")
    prepare(flow, "both", values.format(12, 13))
    await_prepared(flow, name, 1)
    crash(flow, publisher=True, subscribers=name)
    flow.pub.run("COMMIT PREPARED 'both'")
    flow.checkpoint("crash, commit", "tab_full")
    prepare(flow, "subscriber", values.format(14, 15))
    await_prepared(flow, name, 1)
    crash(flow, subscribers=name)
    flow.pub.run("COMMIT PREPARED 'subscriber'")
    flow.checkpoint("subscriber's crash", "tab_full")
    prepare(flow, "publisher", values.format(16, 17))
    await_prepared(flow, name, 1)
    crash(flow, publisher=True)
    flow.pub.run("COMMIT PREPARED 'publisher'")
    flow.checkpoint("publisher's crash", "tab_full")
    flow.facts["after crashes"] = (ours(flow, name), natives(flow, name))


def _kinds(flow: Flow, name: str) -> None:
    prepare(
        flow,
        "outer",
        "INSERT INTO tab_full VALUES (21)",
        "SAVEPOINT inner_",
        "INSERT INTO tab_full VALUES (22)",
        "ROLLBACK TO SAVEPOINT inner_",
    )
    await_prepared(flow, name, 1)
    flow.pub.run("COMMIT PREPARED 'outer'")
    flow.checkpoint("savepoint", "tab_full")
    prepare(flow, "", "INSERT INTO tab_full VALUES (51)")
    flow.facts["empty name"] = await_prepared(flow, name, 1)
    flow.pub.run("ROLLBACK PREPARED ''")
    flow.checkpoint("empty name", "tab_full")


def _copy(flow: Flow) -> None:
    flow.pub.run("INSERT INTO tab_copy VALUES (77)")
    name = flow.subscribe("copy", ["pub_copy"], two_phase=True, copy_data=False)
    flow.facts["at once"] = states(flow, name)
    prepare(flow, "copied", "INSERT INTO tab_copy VALUES (88)")
    await_prepared(flow, name, 1)
    flow.pub.run("COMMIT PREPARED 'copied'")
    flow.checkpoint("without copy", "tab_copy")


def _alter(flow: Flow) -> None:
    name = "t021_18_copy"
    enabled = flow.pgsub.command("alter", name, "SET", "(two_phase = false)", status=None)
    flow.facts["while enabled"] = enabled.stderr
    prepare(flow, "open", "INSERT INTO tab_copy VALUES (89)")
    await_prepared(flow, name, 1)
    flow.alter(name, "DISABLE")
    _await_no_worker(flow, name)
    refused = flow.pgsub.command("alter", name, "SET", "(two_phase = false)", status=None)
    flow.facts["while prepared"] = refused.stderr
    flow.alter(name, "ENABLE")
    flow.pub.run("ROLLBACK PREPARED 'open'")
    await_prepared(flow, name, 0)
    flow.alter(name, "DISABLE")
    _await_no_worker(flow, name)
    flow.alter(name, "SET (two_phase = false)")
    flow.facts["off"] = (states(flow, name), _slots(flow, name))
    flow.alter(name, "ENABLE")
    prepare(flow, "later", "INSERT INTO tab_copy VALUES (91), (92)")
    flow.pub.run("INSERT INTO tab_copy VALUES (93)")
    flow.checkpoint("off", "tab_copy")
    flow.facts["not prepared"] = (ours(flow, name), natives(flow, name))
    flow.alter(name, "DISABLE")
    _await_no_worker(flow, name)
    flow.alter(name, "SET (two_phase = true, failover = true)")
    flow.facts["pending"] = states(flow, name)
    flow.alter(name, "ENABLE")
    await_enabled(flow, name)
    flow.facts["on"] = _slots(flow, name)
    flow.pub.run("COMMIT PREPARED 'later'")
    flow.checkpoint("on", "tab_copy")


def _await_no_worker(flow: Flow, name: str) -> None:
    query = "SELECT count(*) FROM pg_stat_subscription WHERE subname = %s AND pid IS NOT NULL"
    wait_until(lambda: flow.sub.value(query, (f"{name}_native",)) == 0, 60, flow.twin.log_tail)


def _slots(flow: Flow, name: str) -> list[tuple[bool, bool]]:
    """two_phase and failover of our slot and of the twin's."""
    query = (
        "SELECT two_phase, failover FROM pg_replication_slots WHERE slot_name = ANY(%s)"
        " ORDER BY slot_name"
    )
    return flow.pub.execute(query, ([name, f"{name}_native"],))


def _drop(flow: Flow) -> None:
    prepare(flow, "dropped", "INSERT INTO tab_full VALUES (61)")
    await_prepared(flow, flow.subscriptions[0], 1)
    for name in list(flow.subscriptions):
        flow.drop(name)
    flow.pub.run("ROLLBACK PREPARED 'dropped'")
    flow.facts["slots left"] = flow.pub.execute("SELECT slot_name FROM pg_replication_slots")
    flow.facts["left"] = flow.pgsub.status("pg_prepared_xacts")
    flow.facts["files left"] = list((flow.pgsub.data_dir / "prepared").iterdir())
    left = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
    for (gid,) in flow.sub.execute(left):
        flow.sub.run(f"ROLLBACK PREPARED '{gid}'")


def _without_changes(flow: Flow) -> None:
    """Beside no twin: a publisher of 18.4 sends an end alone, which stops the twin for good."""
    name = f"{flow.name}_alone"
    flow.pgsub.create(
        name,
        flow.pub.dsn,
        ["pub"],
        tables={f"{flow.name}.tab_full": {"adopt": True}},
        two_phase=True,
        copy_data=False,
    )
    prepare(flow, "empty", "SELECT a FROM tab_full WHERE a = 2 FOR UPDATE")
    flow.pub.run("INSERT INTO tab_full VALUES (31)")
    flow.pgsub.wait(name)
    flow.facts["empty"] = first(flow.pgsub.rows(flow.name, "tab_full"))
    flow.pub.run("ROLLBACK PREPARED 'empty'", "INSERT INTO tab_full VALUES (32)")
    flow.pgsub.wait(name)
    flow.facts["empty, rolled back"] = first(flow.pgsub.rows(flow.name, "tab_full"))
    flow.facts["nothing"] = ours(flow, name)
    flow.pgsub.drop(name)


def test_s_021_1_two_phase_is_enabled_when_the_tables_are_copied(flow: Flow) -> None:
    assert set(flow.facts["at first"]) <= {"p", "e"}
    assert first(flow.same("copied", "tab_full")) == list(range(1, 11))


def test_s_021_3_rows_are_seen_after_commit_prepared(flow: Flow) -> None:
    assert 11 not in first(flow.same("prepared", "tab_full"))
    (row,) = flow.facts["prepared"]
    assert row["remote_gid"] == "one"
    assert row["gid"].startswith("pg_gid_")
    assert row["gid"].endswith(f"_{row['transaction']}")
    assert 11 in first(flow.same("committed", "tab_full"))
    assert flow.facts["after commit"] == ([], [])


def test_s_021_4_rollback_prepared_throws_the_rows_away(flow: Flow) -> None:
    assert 12 not in first(flow.same("rolled back", "tab_full"))
    assert flow.facts["after rollback"] == ([], [])


def test_s_021_5_both_crash_before_rollback_prepared(flow: Flow) -> None:
    assert {12, 13}.isdisjoint(first(flow.same("crash, rollback", "tab_full")))


def test_s_021_6_both_crash_before_commit_prepared(flow: Flow) -> None:
    assert first(flow.same("crash, commit", "tab_full"))[-2:] == [12, 13]


def test_s_021_7_the_subscriber_crashes_before_commit_prepared(flow: Flow) -> None:
    assert first(flow.same("subscriber's crash", "tab_full"))[-2:] == [14, 15]


def test_s_p_9_killed_between_prepare_and_commit_the_rows_are_seen_once(flow: Flow) -> None:
    rows = first(flow.same("subscriber's crash", "tab_full"))
    assert len(rows) == len(set(rows))
    assert {14, 15} <= set(rows)


def test_s_021_8_the_publisher_crashes_before_commit_prepared(flow: Flow) -> None:
    assert first(flow.same("publisher's crash", "tab_full"))[-2:] == [16, 17]
    assert flow.facts["after crashes"] == ([], [])


def test_s_021_9_a_savepoint_inside_was_rolled_back(flow: Flow) -> None:
    assert first(flow.same("savepoint", "tab_full"))[-1] == 21


def test_s_021_10_the_empty_name(flow: Flow) -> None:
    (row,) = flow.facts["empty name"]
    assert row["remote_gid"] == ""
    assert 51 not in first(flow.same("empty name", "tab_full"))


def test_s_021_11_a_prepared_transaction_without_changes_stops_nothing(flow: Flow) -> None:
    assert flow.facts["empty"][-1] == 31
    assert flow.facts["empty, rolled back"][-1] == 32
    assert flow.facts["nothing"] == []


def test_s_021_12_without_a_copy_two_phase_is_enabled_at_once(flow: Flow) -> None:
    assert flow.facts["at once"] == ("e", "e")
    assert flow.same("without copy", "tab_copy") == [(88,)]


def test_s_021_14_turning_two_phase_off_needs_a_subscription_at_rest(flow: Flow) -> None:
    if flow.pub.server.version < 18:
        pytest.skip("only PostgreSQL 18 alters a slot's two_phase")
    assert 'cannot set option "two_phase" for enabled subscription' in flow.facts["while enabled"]
    refusal = 'cannot disable "two_phase" when prepared transactions exist'
    assert refusal in flow.facts["while prepared"]
    assert flow.facts["off"] == (("d", "d"), [(False, False), (False, False)])


def test_s_021_15_after_that_nothing_is_prepared(flow: Flow) -> None:
    if flow.pub.server.version < 18:
        pytest.skip("only PostgreSQL 18 alters a slot's two_phase")
    assert flow.facts["not prepared"] == ([], [])
    assert first(flow.same("off", "tab_copy")) == [88, 93]


def test_s_021_16_two_phase_and_failover_together(flow: Flow) -> None:
    if flow.pub.server.version < 18:
        pytest.skip("only PostgreSQL 18 alters a slot's two_phase")
    assert flow.facts["pending"] == ("p", "p")
    assert flow.facts["on"] == [(True, True), (True, True)]
    assert first(flow.same("on", "tab_copy")) == [88, 91, 92, 93]


def test_s_021_17_drop_leaves_nothing(flow: Flow) -> None:
    assert flow.facts["slots left"] == []
    assert flow.facts["left"] == []
    assert flow.facts["files left"] == []
