"""Columns that the partitions and the order of a lake table are made from: renamed, and dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.integration.flow import Flow
from tests.waiting import wait_until

LAYOUT = {"partition_by": ["region", "days(at)"], "sort_by": ["n DESC"]}


def test_a_dropped_column_of_the_partitions_stops_until_it_is_kept(
    publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]
) -> None:
    flow = make_flow(publisher, "layout_column")
    flow.both("CREATE TABLE visits (id int PRIMARY KEY, region text, at timestamp, n int)")
    flow.pub.run(
        "INSERT INTO visits SELECT i, 'r' || i % 3, timestamp '2026-01-01' + i * interval '6 h', i"
        " FROM generate_series(1, 12) i",
        "CREATE PUBLICATION pub FOR TABLE visits",
    )
    flow.subscribe("sub", ["pub"], tables={"visits": LAYOUT})
    flow.checkpoint("copied", "visits")
    flow.both("ALTER TABLE visits RENAME COLUMN region TO area")
    flow.pub.run("UPDATE visits SET area = 'moved' WHERE id % 4 = 0")
    flow.checkpoint("renamed", "visits")
    before = flow.same("renamed", "visits")
    with flow.pgsub.settings(on_dropped_column="drop"):
        flow.both("ALTER TABLE visits DROP COLUMN area")
        flow.pub.run(
            "INSERT INTO visits VALUES (20, '2026-02-01', 20)",
            "UPDATE visits SET n = -n WHERE id % 3 = 0",
            "DELETE FROM visits WHERE id = 2",
        )
        error = wait_until(lambda: _error(flow), 60, flow.pgsub.log_tail)
        assert error["sqlstate"] == "55000"
        assert 'Column "area" was dropped' in error["detail"]
        assert "on_dropped_column: keep" in error["hint"]
        assert flow.pgsub.rows(flow.name, "visits", ["id", "area", "at", "n"]) == before
    flow.checkpoint("kept", "visits", columns={"visits": ["id", "at", "n"]})
    assert len(flow.same("kept", "visits")) == 12
    rows = flow.lake(
        "SELECT id, area, _partition.region <=> area AND _partition.at_day <=> date(at) AS placed"
        " FROM {t}.visits ORDER BY id"
    )
    assert [row["placed"] for row in rows] == [True] * 12
    assert {row["id"]: row["area"] for row in rows if row["id"] in (1, 4, 20)} == {
        1: "r1",
        4: "moved",
        20: None,
    }


def _error(flow: Flow) -> dict[str, Any]:
    """The error that stops the subscription of the flow, once there is one."""
    found = 'changed columns of table "layout_column.visits" cannot be followed'
    return next((e for e in flow.pgsub.status("last_errors") if e["message"] == found), {})
