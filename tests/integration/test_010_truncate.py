"""PostgreSQL's 010_truncate, in order with the changes around it.

Left out: S-010-2 (no sequences).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.integration.flow import Flow, first, n_min_max
from tests.waiting import wait_until

SCHEMA = (
    "CREATE TABLE tab1 (a int PRIMARY KEY)",
    "CREATE TABLE tab2 (a int PRIMARY KEY)",
    "CREATE TABLE tab3 (a int PRIMARY KEY)",
    "CREATE TABLE tab4 (x int PRIMARY KEY, y int REFERENCES tab3)",
)


@pytest.fixture(scope="module")
def flow(publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(publisher, "t010")
    flow.both(*SCHEMA)
    flow.pub.run(
        "CREATE PUBLICATION pub1 FOR TABLE tab1",
        "CREATE PUBLICATION pub2 FOR TABLE tab2 WITH (publish = 'insert')",
        "CREATE PUBLICATION pub3 FOR TABLE tab3, tab4",
    )
    flow.subscribe("sub1", ["pub1"])
    flow.subscribe("sub2", ["pub2"])
    flow.subscribe("sub3", ["pub3"])
    flow.catch_up()
    _plain(flow)
    _in_order(flow)
    _publish_set(flow)
    _linked_tables(flow)
    _synchronous(flow)
    _two_subscriptions(flow)
    return flow


def _plain(flow: Flow) -> None:
    flow.pub.run("INSERT INTO tab1 VALUES (1), (2), (3)")
    flow.checkpoint("before", "tab1")
    flow.pub.run("TRUNCATE tab1")
    flow.checkpoint("truncated", "tab1")
    flow.pub.run("TRUNCATE tab1 RESTART IDENTITY", "INSERT INTO tab1 VALUES (1)")
    flow.checkpoint("restarted", "tab1")


def _in_order(flow: Flow) -> None:
    flow.pub.execute(
        "INSERT INTO tab1 VALUES (10), (11); DELETE FROM tab1 WHERE a = 10; TRUNCATE tab1;"
        " INSERT INTO tab1 VALUES (10), (12); UPDATE tab1 SET a = 13 WHERE a = 12;"
    )
    flow.pub.run(
        "TRUNCATE tab1", "INSERT INTO tab1 VALUES (20), (21)", "DELETE FROM tab1 WHERE a=20"
    )
    flow.checkpoint("in order", "tab1")


def _publish_set(flow: Flow) -> None:
    flow.pub.run("INSERT INTO tab2 VALUES (1), (2), (3)", "TRUNCATE tab2")
    flow.checkpoint("not published", "tab2")
    flow.pub.run("ALTER PUBLICATION pub2 SET (publish = 'insert, truncate')", "TRUNCATE tab2")
    flow.checkpoint("published", "tab2")


def _linked_tables(flow: Flow) -> None:
    flow.pub.run(
        "INSERT INTO tab3 VALUES (1), (2), (3)",
        "INSERT INTO tab4 VALUES (11, 1), (111, 1), (22, 2)",
    )
    flow.checkpoint("linked before", "tab3", "tab4")
    flow.pub.run("TRUNCATE tab3, tab4")
    flow.checkpoint("linked", "tab3", "tab4")


def _synchronous(flow: Flow) -> None:
    server = flow.pub.server
    _wait_for(server, f'"{flow.subscriptions[0]}"')
    try:
        flow.pub.run("SET statement_timeout = '60s'", "INSERT INTO tab1 VALUES (1), (2), (3)")
        # The commit has returned: what it waited for is in the lake without any further wait.
        flow.facts["synchronous"] = flow.pgsub.rows(flow.name, "tab1")
        flow.pub.run("SET statement_timeout = '60s'", "TRUNCATE tab1")
        flow.facts["synchronous truncate"] = flow.pgsub.rows(flow.name, "tab1")
        query = "SELECT sync_state FROM pg_stat_replication WHERE application_name = %s"
        flow.facts["state"] = flow.pub.value(query, (flow.subscriptions[0],))
    finally:
        server.execute("ALTER SYSTEM RESET synchronous_standby_names")
        server.execute("SELECT pg_reload_conf()")
    flow.checkpoint("synchronous", "tab1")


def _wait_for(server: EmbeddedPublisher, standbys: str) -> None:
    """Commits wait for these standbys when this returns.

    A commit waits once the checkpointer, not the session, has reread the setting. The postmaster
    rereads first, and tells the checkpointer before the next connection. The checkpointer rereads
    between two checkpoints; the first of the two may have begun just before it was told.
    """
    server.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{standbys}'")
    server.execute("SELECT pg_reload_conf()")
    shown = "SHOW synchronous_standby_names"
    wait_until(lambda: server.execute(shown) == [(standbys,)], 60, "the server has the setting")
    server.execute("CHECKPOINT")
    server.execute("CHECKPOINT")


def _two_subscriptions(flow: Flow) -> None:
    """Both copy, both insert, both truncate: into one lake table, which they have to declare."""
    flow.both("CREATE TABLE tab5 (a int)")
    flow.pub.run("CREATE PUBLICATION pub5 FOR TABLE tab5", "INSERT INTO tab5 VALUES (7)")
    for name in ("sub5_1", "sub5_2"):
        flow.subscribe(name, ["pub5"], tables={"tab5": {"shared": True}})
    flow.checkpoint("two copies", "tab5")
    before = _apply_pids(flow)
    # Natively the second worker's TRUNCATE would empty what the first has inserted after its own.
    flow.pub.run("TRUNCATE tab5")
    flow.catch_up()
    flow.pub.run("INSERT INTO tab5 VALUES (1), (2), (3)")
    flow.checkpoint("two inserts", "tab5")
    flow.facts["sources"] = flow.lake(
        "SELECT count(*) n, count(DISTINCT _pgsub_source) sources FROM {t}.tab5"
    )
    flow.pub.run("TRUNCATE tab5")
    flow.checkpoint("two truncates", "tab5")
    flow.facts["apply workers"] = before, _apply_pids(flow)


def _apply_pids(flow: Flow) -> list[int]:
    found = [flow.pgsub.worker(name) for name in flow.subscriptions]
    return [worker["pid"] for worker in found if worker is not None]


def test_s_010_1_truncate_empties_the_table(flow: Flow) -> None:
    assert n_min_max(flow.same("before", "tab1")) == (3, 1, 3)
    assert flow.same("truncated", "tab1") == []
    assert flow.same("restarted", "tab1") == [(1,)]


def test_truncate_is_in_order_with_the_changes_around_it(flow: Flow) -> None:
    assert flow.same("in order", "tab1") == [(21,)]


def test_s_010_3_a_publication_without_truncate(flow: Flow) -> None:
    assert n_min_max(flow.same("not published", "tab2")) == (3, 1, 3)


def test_s_010_4_truncate_added_to_the_publish_set(flow: Flow) -> None:
    assert flow.same("published", "tab2") == []


def test_s_010_5_linked_tables_in_one_message(flow: Flow) -> None:
    assert first(flow.same("linked before", "tab4")) == [11, 22, 111]
    assert flow.same("linked", "tab3") == flow.same("linked", "tab4") == []


def test_s_010_7_the_subscription_is_the_synchronous_standby(flow: Flow) -> None:
    """H-36."""
    assert flow.facts["state"] == "sync"
    assert n_min_max(flow.facts["synchronous"])[0] == 4  # 21 and the three
    assert flow.facts["synchronous truncate"] == []
    assert flow.same("synchronous", "tab1") == []


def test_s_010_8_two_subscriptions_into_one_table(flow: Flow) -> None:
    """H-36."""
    assert flow.same("two copies", "tab5") == [(7,), (7,)]
    assert n_min_max(flow.same("two inserts", "tab5")) == (6, 1, 3)
    assert flow.facts["sources"] == [{"n": 6, "sources": 2}]
    assert flow.same("two truncates", "tab5") == []


def test_s_010_9_nobody_failed_on_the_other(flow: Flow) -> None:
    before, after = flow.facts["apply workers"]
    assert len(before) == len(flow.subscriptions)
    assert before == after
