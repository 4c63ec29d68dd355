"""``refresh: auto``: tables join and leave by themselves; the twin is refreshed by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fix_publisher import requested_publisher
from tests.integration.flow import Flow
from tests.servers import every_version
from tests.twin import native_rows
from tests.waiting import wait_until

PATIENCE = 120.0


@pytest.fixture(scope="module", params=every_version(18))
def flow(request: pytest.FixtureRequest, make_flow: Callable[..., Flow]) -> Flow:
    """One way from table a to a and b, to b, and to a and b again."""
    flow = make_flow(requested_publisher(request), f"t_joining_{request.param}")
    flow.both(*(f"CREATE TABLE {table} (id int PRIMARY KEY, v int)" for table in "ab"))
    flow.pub.run(
        *(f"INSERT INTO {table} VALUES (1, 10), (2, 20)" for table in "ab"),
        "CREATE PUBLICATION pub FOR TABLE a",
    )
    name = flow.subscribe("sub", ["pub"], refresh="auto")
    flow.checkpoint("one", "a")

    flow.pub.run("ALTER PUBLICATION pub ADD TABLE b", "INSERT INTO b VALUES (3, 30)")
    wait_for(flow, name, {"a", "b"})
    refresh_twin(flow, name)
    flow.pub.run("UPDATE b SET v = v + 1")
    flow.checkpoint("joined", "a", "b")

    flow.pub.run("ALTER PUBLICATION pub DROP TABLE a", "UPDATE a SET v = 0", "DELETE FROM b")
    wait_for(flow, name, {"b"})
    refresh_twin(flow, name)
    flow.pub.run("INSERT INTO b VALUES (4, 40)")
    flow.checkpoint("left", "a", "b")

    flow.sub.run("TRUNCATE a")  # PostgreSQL copies on top: the keys would be there twice
    flow.pub.run("ALTER PUBLICATION pub ADD TABLE a", "INSERT INTO a VALUES (5, 50)")
    wait_for(flow, name, {"a", "b"})
    refresh_twin(flow, name)
    flow.checkpoint("returned", "a", "b")
    return flow


def wait_for(flow: Flow, name: str, tables: set[str]) -> None:
    wait_until(lambda: set(flow.states(name)) == tables, PATIENCE, flow.pgsub.log_tail)


def refresh_twin(flow: Flow, name: str) -> None:
    flow.sub.said(f'ALTER SUBSCRIPTION "{name}_native" REFRESH PUBLICATION')


def test_a_table_joins_with_its_rows(flow: Flow) -> None:
    assert flow.same("one", "a") == [(1, 10), (2, 20)]
    assert flow.same("joined", "a") == [(1, 10), (2, 20)]
    assert flow.same("joined", "b") == [(1, 11), (2, 21), (3, 31)]


def test_a_table_leaves_and_keeps_its_rows(flow: Flow) -> None:
    assert flow.same("left", "a") == [(1, 10), (2, 20)]
    assert flow.same("left", "b") == [(4, 40)]


def test_a_table_that_returns_has_each_row_once(flow: Flow) -> None:
    assert flow.same("returned", "a") == [(1, 0), (2, 0), (5, 50)]
    assert flow.same("returned", "a") == native_rows(flow.pub, "a")


def test_it_is_told_in_the_log(flow: Flow) -> None:
    log = flow.pgsub.log_file.read_text(errors="replace")
    name = flow.subscriptions[0]
    for table, said in (("b", "added to subscription"), ("a", "removed from")):
        assert f'action=auto_refresh table "{flow.name}.{table}" {said} "{name}"' in log
