"""A published table gets another name: both subscribers stop at its first change, none is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from subscriber.publisher import EmbeddedPublisher
from tests.integration.flow import Flow, first


@pytest.fixture(scope="module")
def flow(publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(publisher, "renamed")
    flow.both("CREATE TABLE was (a int PRIMARY KEY)", "CREATE TABLE stays (a int PRIMARY KEY)")
    flow.pub.run(
        "INSERT INTO was VALUES (1)", "CREATE PUBLICATION renamed_pub FOR TABLE was, stays"
    )
    name = flow.subscribe("main", ["renamed_pub"])
    flow.checkpoint("copied", "was", "stays")
    flow.pub.run(
        "INSERT INTO was VALUES (2)",
        "ALTER TABLE was RENAME TO moved",
        "INSERT INTO moved VALUES (3)",
        "INSERT INTO stays VALUES (1)",
    )
    flow.wait_failing(name)
    flow.facts["log"] = flow.pgsub.log_tail()
    flow.facts["was"] = flow.pgsub.rows("renamed", "was", ["a"])
    flow.sub.run("CREATE TABLE moved (a int PRIMARY KEY)")
    flow.alter(name, "REFRESH PUBLICATION")
    flow.pub.run("INSERT INTO moved VALUES (4)")
    flow.checkpoint("refreshed", "was", "moved", "stays")
    flow.facts["states"] = flow.states(name)
    return flow


def test_it_stops_and_names_both(flow: Flow) -> None:
    assert first(flow.facts["was"]) == [1, 2]
    assert 'logical replication target relation "renamed.moved" does not exist' in flow.facts["log"]
    assert '"renamed.was" when it was subscribed' in flow.facts["log"]


def test_refresh_copies_it_under_its_new_name(flow: Flow) -> None:
    assert first(flow.same("refreshed", "moved")) == [1, 2, 3, 4]
    assert first(flow.same("refreshed", "stays")) == [1]
    assert first(flow.same("refreshed", "was")) == [1, 2]
    assert flow.facts["states"] == {"moved": "r", "stays": "r"}
