"""A published table gets another name: both subscribers stop at its first change, none is lost.

``part`` is one of a shared lake table: its rows under the old name stay until they are deleted.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.integration.flow import Flow, first


@pytest.fixture(scope="module")
def flow(publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(publisher, "renamed")
    flow.both(*(f"CREATE TABLE {table} (a int PRIMARY KEY)" for table in ("was", "stays", "part")))
    flow.pub.run(
        "INSERT INTO was VALUES (1)",
        "INSERT INTO part VALUES (1)",
        "CREATE PUBLICATION renamed_pub FOR TABLE was, stays, part",
    )
    shared = {"to": "renamed.parts", "shared": True}
    name = flow.subscribe("main", ["renamed_pub"], tables={"part": shared, "portion": shared})
    flow.checkpoint("copied", "was", "stays")
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


def test_it_stops_and_names_both(flow: Flow) -> None:
    assert first(flow.facts["was"]) == [1, 2]
    assert 'logical replication target relation "renamed.moved" does not exist' in flow.facts["log"]
    assert '"renamed.was" when it was subscribed' in flow.facts["log"]


def test_refresh_copies_it_under_its_new_name(flow: Flow) -> None:
    assert first(flow.same("refreshed", "moved")) == [1, 2, 3, 4]
    assert first(flow.same("refreshed", "stays")) == [1]
    assert first(flow.same("refreshed", "was")) == [1, 2]
    assert flow.facts["states"] == {"moved": "r", "stays": "r", "portion": "r"}


def test_rows_under_the_old_name_go_from_a_shared_lake_table_by_what_refresh_said(
    flow: Flow,
) -> None:
    assert [first(rows) for rows in flow.facts["parts"]] == [[1, 1, 2], [1, 2], [1, 2, 3]]
