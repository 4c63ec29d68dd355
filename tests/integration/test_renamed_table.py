"""A published table gets another name: its rows go on under the new name, without a copy.

The twin's table is renamed by hand, as a DBA does. With ``on_schema_change: stop`` both subscribers
stop at the first change (``was``). ``part`` is one of a shared lake table: its rows under the old
name stay until they are deleted.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.integration.flow import Flow, first
from tests.twin import in_order, native_rows
from tests.waiting import wait_until

FOLLOWED = ("followed", "kept_on", "mapped_on", "renamed_farther.wanders")
"""The tables that are followed, under their names at the end."""


@pytest.fixture(scope="module")
def flow(publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(publisher, "renamed")
    flow.both(*(f"CREATE TABLE {table} (a int PRIMARY KEY)" for table in ("was", "stays", "part")))
    olds = ("follows", "kept", "mapped", "wanders", "again")
    flow.both(*(f"CREATE TABLE {table} (a int PRIMARY KEY, v int)" for table in olds))
    flow.both("CREATE SCHEMA renamed_far")
    flow.pub.run(
        "INSERT INTO was VALUES (1)",
        "INSERT INTO part VALUES (1)",
        *(f"INSERT INTO {table} SELECT i, i FROM generate_series(1, 10) i" for table in olds),
        f"CREATE PUBLICATION renamed_pub FOR TABLE was, stays, part, {', '.join(olds)}",
    )
    shared: dict[str, Any] = {"to": "renamed.parts", "shared": True}
    stops: dict[str, Any] = {"on_schema_change": "stop"}
    mapped: dict[str, Any] = {"to": "renamed.lake_name", "columns": {"v": {"to": "value"}}}
    tables = {"part": shared, "portion": shared, "was": stops, "moved": stops, "mapped": mapped}
    name = flow.subscribe("main", ["renamed_pub"], tables={**tables, "kept": {"on_rename": "keep"}})
    flow.checkpoint("copied", "was", "stays")
    _rename_and_follow(flow, name)
    _rename_before_the_copy(flow, name)
    flow.pub.run(
        "INSERT INTO was VALUES (2)",
        "ALTER TABLE was RENAME TO moved",
        "INSERT INTO moved VALUES (3)",
        "INSERT INTO stays VALUES (1)",
        "ALTER TABLE part RENAME TO portion",
    )
    flow.wait_failing(name)
    flow.facts["log"] = flow.pgsub.log_tail()
    flow.facts["was"] = flow.pgsub.rows("renamed", "was", ["a"])
    flow.sub.run(*(f"CREATE TABLE {table} (a int PRIMARY KEY)" for table in ("moved", "portion")))
    flow.alter(name, "REFRESH PUBLICATION")
    flow.pub.run("INSERT INTO moved VALUES (4)", "INSERT INTO portion VALUES (2)")
    flow.checkpoint("refreshed", "was", "moved", "stays")
    flow.facts["states"] = flow.states(name)
    flow.facts["parts"] = [flow.pgsub.rows("renamed", "parts", ["a"])]
    (hint,) = (line for line in flow.said[name].splitlines() if "delete them" in line)
    _, *command = shlex.split(hint.partition("delete them: ")[2])
    flow.pgsub.command(*command)
    flow.facts["parts"].append(flow.pgsub.rows("renamed", "parts", ["a"]))
    flow.pub.run("INSERT INTO portion VALUES (3)")
    flow.catch_up()
    flow.facts["parts"].append(flow.pgsub.rows("renamed", "parts", ["a"]))
    return flow


def _rename_and_follow(flow: Flow, name: str) -> None:
    """Changes under the old names and the new ones are queued; later a schema is renamed."""
    flow.pgsub.command("disable", name)
    for table in ("follows", "kept", "mapped", "wanders"):
        flow.pub.run(_change(table, 10))
    flow.catch_up(ours=False)
    flow.both(
        "ALTER TABLE follows RENAME TO followed",
        "ALTER TABLE kept RENAME TO kept_on",
        "ALTER TABLE mapped RENAME TO mapped_on",
        "ALTER TABLE wanders SET SCHEMA renamed_far",
    )
    for table in ("followed", "kept_on", "mapped_on", "renamed_far.wanders"):
        flow.pub.run(_change(table, 20))
    flow.pgsub.command("enable", name)
    _wait_for_names(flow, {"followed", "kept_on", "mapped_on", "renamed_far.wanders"})
    flow.catch_up()
    flow.both("ALTER SCHEMA renamed_far RENAME TO renamed_farther")
    flow.pub.run(_change("renamed_farther.wanders", 30))
    _wait_for_names(flow, {"renamed_farther.wanders"})
    for table in FOLLOWED:
        flow.pub.run(_change(table, 40))
    flow.catch_up()
    lake = {"kept_on": ("renamed", "kept"), "mapped_on": ("renamed", "lake_name")}
    for table in FOLLOWED:
        where, columns = lake.get(table, flow.qualified(table)), ["a", "v"]
        theirs = native_rows(flow.sub, table, columns)
        ours = flow.pgsub.rows(*where, ["a", "value" if table == "mapped_on" else "v"])
        flow.facts[table] = (ours, theirs)
    flow.facts["changes"] = flow.pgsub.status("schema_changes")
    flow.facts["tables"] = flow.lake_tables()
    flow.facts["snapshots"] = flow.lake("SELECT count(*) AS n FROM {t}.followed.snapshots")


def _rename_before_the_copy(flow: Flow, name: str) -> None:
    """The table is to be copied again, and its new name is committed before the copy begins."""
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with flow.pub.connect() as other:
        other.execute("BEGIN; ALTER TABLE again RENAME TO again_on")
        flow.pgsub.command("refresh", name, "--recopy", ".".join(flow.qualified("again")))
        wait_until(lambda: flow.pub.execute(waits) == [(1,)], 60, flow.pgsub.log_tail)
        other.execute("COMMIT")
    flow.sub.run("ALTER TABLE again RENAME TO again_on")
    _wait_for_names(flow, {"again_on"})
    flow.pub.run(_change("again_on", 30))
    flow.catch_up()
    ours = flow.pgsub.rows("renamed", "again_on", ["a", "v"])
    flow.facts["again_on"] = (ours, native_rows(flow.sub, "again_on", ["a", "v"]))


def _change(table: str, first: int) -> str:
    return (
        f"BEGIN; INSERT INTO {table} SELECT i, 0 FROM generate_series({first + 1}, {first + 5}) i;"
        f" UPDATE {table} SET v = v + 100 WHERE a % 3 = 0; DELETE FROM {table} WHERE a = {first};"
        " COMMIT"
    )


def _wait_for_names(flow: Flow, names: set[str]) -> None:
    wanted = {flow.qualified(name) for name in names}

    def are_known() -> bool:
        rels = flow.pgsub.status("pg_subscription_rel")
        return wanted <= {(row["nspname"], row["relname"]) for row in rels}

    wait_until(are_known, 120, flow.pgsub.log_tail)


def test_a_table_is_renamed_before_its_copy(flow: Flow) -> None:
    ours, theirs = flow.facts["again_on"]
    assert in_order(ours) == theirs
    assert len(ours) > 10


@pytest.mark.parametrize("table", FOLLOWED)
def test_rows_under_every_name_are_the_twin_s(flow: Flow, table: str) -> None:
    ours, theirs = flow.facts[table]
    assert in_order(ours) == theirs
    assert len(ours) > 20


def test_the_lake_table_is_renamed_and_nothing_is_copied(flow: Flow) -> None:
    assert {"followed", "kept", "lake_name"} <= flow.facts["tables"]
    assert not {"follows", "kept_on", "mapped", "wanders"} & flow.facts["tables"]
    described = [row["description"] for row in flow.facts["changes"]]
    assert 'table "renamed.follows" renamed to "renamed.followed"' in described
    assert 'table "renamed_far.wanders" renamed to "renamed_farther.wanders"' in described
    assert all(row["copy_state"] is None for row in flow.facts["changes"])
    assert flow.facts["snapshots"][0]["n"] > 1


def test_it_stops_and_names_both(flow: Flow) -> None:
    assert first(flow.facts["was"]) == [1, 2]
    assert 'logical replication target relation "renamed.moved" does not exist' in flow.facts["log"]
    assert '"renamed.was" when it was subscribed' in flow.facts["log"]


def test_refresh_copies_it_under_its_new_name(flow: Flow) -> None:
    assert first(flow.same("refreshed", "moved")) == [1, 2, 3, 4]
    assert first(flow.same("refreshed", "stays")) == [1]
    assert first(flow.same("refreshed", "was")) == [1, 2]
    names = ("followed", "kept_on", "mapped_on", "wanders", "again_on")
    followed = dict.fromkeys(names, "r")
    assert flow.facts["states"] == {"moved": "r", "stays": "r", "portion": "r", **followed}


def test_rows_under_the_old_name_go_from_a_shared_lake_table_by_what_refresh_said(
    flow: Flow,
) -> None:
    assert [first(rows) for rows in flow.facts["parts"]] == [[1, 1, 2], [1, 2], [1, 2, 3]]
