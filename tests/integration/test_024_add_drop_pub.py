"""PostgreSQL's 024_add_drop_pub, and what of 007_ddl needs rows: lists that change under a worker.

A table that leaves and comes back, a subscription that is renamed while transactions arrive: each
row is there as often as natively.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from catalog.store_sqlite import CatalogStore
from config.load import from_stored
from config.statements import PublicationAction
from subscriber.commands.alter import (
    alter_enabled,
    alter_options,
    alter_publications,
    alter_refresh,
    alter_rename,
)
from subscriber.commands.context import CommandContext
from subscriber.commands.create_drop import drop_subscription
from subscriber.commands.open_context import open_command_context
from subscriber.demo.embedded_postgres import EmbeddedPublisher
from subscriber.messages import Notice
from tests.integration.flow import Flow, n_min_max
from tests.waiting import wait_until


def alter(flow: Flow, act: Callable[[CommandContext], None]) -> list[str]:
    """A command in this process; what it said."""
    said: list[Notice] = []
    data_dir = flow.pgsub.data_dir
    store = CatalogStore.open(data_dir)
    try:
        with open_command_context(
            data_dir, store, from_stored(store.settings()), notify=said.append
        ) as context:
            act(context)
    finally:
        store.close()
    return [f"{notice.severity}:  {notice.primary}" for notice in said]


def publications(
    flow: Flow, name: str, action: PublicationAction, *named: str, copy_data: bool = True
) -> None:
    """ALTER SUBSCRIPTION … PUBLICATION on both sides, with its refresh; what they said."""
    words = f"ALTER SUBSCRIPTION {name}_native {action} PUBLICATION {', '.join(named)}"
    native = flow.sub.said(f"{words} WITH (copy_data = {copy_data})")

    def ours(context: CommandContext) -> None:
        alter_publications(name, action, named, context, refresh=True, copy_data=copy_data)

    flow.facts[f"{action} {' '.join(named)}"] = alter(flow, ours), native


@pytest.fixture(scope="module")
def flow(publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(publisher, "t024")
    flow.both("CREATE TABLE tab_1 (a int)", "CREATE TABLE tab_2 (a int)")
    flow.pub.run(
        "INSERT INTO tab_1 SELECT generate_series(1, 10)",
        "INSERT INTO tab_2 SELECT generate_series(1, 10)",
        "CREATE PUBLICATION tap_pub_1 FOR TABLE tab_1",
        "CREATE PUBLICATION tap_pub_2",
    )
    name = flow.subscribe("main", ["tap_pub_1", "tap_pub_2"])
    flow.checkpoint("created", "tab_1")

    publications(flow, name, "drop", "tap_pub_1")
    flow.pub.run("ALTER PUBLICATION tap_pub_2 ADD TABLE tab_2")
    publications(flow, name, "add", "tap_pub_1")
    flow.checkpoint("added again", "tab_1", "tab_2")

    publications(flow, name, "drop", "tap_pub_1")
    flow.pub.run("INSERT INTO tab_1 VALUES (100)")
    flow.catch_up()
    publications(flow, name, "add", "tap_pub_1", copy_data=False)
    flow.pub.run("INSERT INTO tab_1 VALUES (101)")
    flow.checkpoint("added without copy", "tab_1")

    renamed = _rename_under_load(flow, name)
    _missing_publication(flow, renamed)
    _options(flow, renamed)
    _leave_the_slot(flow)
    return flow


def _rename_under_load(flow: Flow, name: str) -> str:
    """Ours only: the native one is compared by its rows."""
    renamed = f"{name}2"
    load = "INSERT INTO tab_2 SELECT generate_series({0}, {0} + 9)"
    flow.pub.run(*[load.format(1000 + 10 * n) for n in range(20)])
    flow.facts["renamed"] = alter(flow, lambda context: alter_rename(name, renamed, context))
    flow.pub.run(*[load.format(2000 + 10 * n) for n in range(20)])
    flow.sub.execute(f"ALTER SUBSCRIPTION {name}_native RENAME TO {renamed}_native")
    flow.subscriptions[flow.subscriptions.index(name)] = renamed
    flow.checkpoint("renamed", "tab_2")
    return renamed


def _missing_publication(flow: Flow, name: str) -> None:
    flow.both("CREATE TABLE tab_3 (a int)")
    publications(flow, name, "set", "tap_pub_3")
    flow.pub.run("INSERT INTO tab_3 VALUES (1)")
    flow.catch_up()
    flow.pub.run("CREATE PUBLICATION tap_pub_3 FOR TABLE tab_3")
    flow.sub.execute(f"ALTER SUBSCRIPTION {name}_native REFRESH PUBLICATION")
    alter(flow, lambda context: alter_refresh(name, context, copy_data=True))
    flow.catch_up()
    flow.pub.run("INSERT INTO tab_3 VALUES (2)")
    flow.checkpoint("publication made", "tab_3")


def _options(flow: Flow, name: str) -> None:
    """A change that restarts the worker, in the middle of what arrives."""
    flow.pub.run("INSERT INTO tab_3 SELECT generate_series(3, 50)")
    alter(flow, lambda context: alter_options(name, {"origin": "none"}, context))
    flow.pub.run("INSERT INTO tab_3 SELECT generate_series(51, 99)")
    flow.checkpoint("restarted", "tab_3")


def _leave_the_slot(flow: Flow) -> None:
    """With workers that live; natively all in one transaction."""
    flow.both("CREATE TABLE tab_4 (a int)")
    flow.pub.run("CREATE PUBLICATION tap_pub_4 FOR TABLE tab_4")
    name = flow.subscribe("leaving", ["tap_pub_4"])
    flow.catch_up()

    def leave(context: CommandContext) -> None:
        alter_enabled(name, False, context)
        alter_options(name, {"slot_name": None}, context)
        drop_subscription(name, context)
        flow.facts["workers left"] = [
            worker
            for worker in context.workers()
            if context.store.subscription(worker.subid) is None
        ]

    alter(flow, leave)
    native = f"ALTER SUBSCRIPTION {name}_native"
    flow.sub.execute(
        f"{native} DISABLE; {native} SET (slot_name = NONE); DROP SUBSCRIPTION {name}_native"
    )
    flow.subscriptions.remove(name)
    flow.facts["left"] = [row["subname"] for row in flow.pgsub.status("pg_subscription")]
    flow.facts["native left"] = flow.sub.execute(
        "SELECT subname FROM pg_subscription JOIN pg_database d ON d.oid = subdbid"
        " WHERE datname = current_database()"
    )
    left = "SELECT slot_name, active FROM pg_replication_slots WHERE slot_name IN (%s, %s)"
    both = (name, f"{name}_native")
    nobody = {(slot, False) for slot in both}
    wait_until(lambda: set(flow.pub.execute(left, both)) == nobody, what="nobody reads from them")
    for slot in both:
        flow.pub.execute(f"SELECT pg_drop_replication_slot('{slot}')")
    flow.facts["leaked"] = flow.pgsub.status("leaked_slots")


def test_s_007_1_disable_disassociate_and_drop_beside_live_workers(flow: Flow) -> None:
    assert flow.facts["workers left"] == []
    assert f"{flow.name}_leaving" not in flow.facts["left"]
    assert flow.facts["native left"] == [(f"{flow.name}_main2_native",)]


def test_s_026_12_the_slot_that_is_left_can_be_dropped_by_hand(flow: Flow) -> None:
    """As the native one's, once nobody reads from it. It was set free on purpose: it is not listed
    as leaked."""
    assert flow.facts["leaked"] == []


def test_s_024_1_two_publications_at_creation(flow: Flow) -> None:
    assert n_min_max(flow.same("created", "tab_1")) == (10, 1, 10)


def test_s_024_3_a_publication_that_is_added_again_is_copied_again(flow: Flow) -> None:
    assert n_min_max(flow.same("added again", "tab_1")) == (20, 1, 10)
    assert n_min_max(flow.same("added again", "tab_2")) == (10, 1, 10)


def test_a_publication_that_is_added_again_without_copy(flow: Flow) -> None:
    """What was committed while it was away is missing, as natively."""
    assert n_min_max(flow.same("added without copy", "tab_1")) == (21, 1, 101)


def test_a_subscription_that_is_renamed_under_load(flow: Flow) -> None:
    assert n_min_max(flow.same("renamed", "tab_2")) == (410, 1, 2199)


def test_s_024_4_a_missing_publication_is_warned_of(flow: Flow) -> None:
    """Its refresh leaves no table, and the stream goes on: the flow has caught up after it."""
    ours, native = flow.facts["set tap_pub_3"]
    assert native == ['WARNING:  publication "tap_pub_3" does not exist on the publisher']
    assert [line for line in ours if line.startswith("WARNING")] == native
    assert [line for line in ours if "removed from" in line]


def test_s_024_5_a_publication_that_is_made_later(flow: Flow) -> None:
    assert [row[0] for row in flow.same("publication made", "tab_3")] == [1, 2]


def test_a_worker_that_starts_again_because_of_an_option(flow: Flow) -> None:
    assert n_min_max(flow.same("restarted", "tab_3")) == (99, 1, 99)
