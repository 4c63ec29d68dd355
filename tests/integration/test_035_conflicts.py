"""PostgreSQL's 035_conflicts: one change that breaks several unique keys is one error naming all.

The target has rows of its own, and keys that the publisher knows nothing of: ``keys:`` in the
file, unique columns on the twin. Each step is stopped, the rows in its way are removed on both
sides, and the transaction goes through by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.integration.flow import Flow
from tests.waiting import wait_until

ROWS = "(2, 2, 2), (3, 3, 3), (4, 4, 4), (6, 6, 6), (7, 7, 7), (8, 8, 8)"
COLUMN = "confl_multiple_unique_conflicts"


@pytest.fixture(scope="module")
def flow(publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(publisher, "t035")
    flow.pub.run(
        "CREATE TABLE conf_tab (a int PRIMARY KEY, b int, c int)",
        "CREATE TABLE conf_tab_2 (a int PRIMARY KEY, b int, c int) PARTITION BY RANGE (a)",
        "CREATE TABLE conf_tab_2_p1 PARTITION OF conf_tab_2 DEFAULT",
        "CREATE PUBLICATION pub_tab FOR TABLE conf_tab, conf_tab_2",
    )
    flow.sub.run(
        "CREATE TABLE conf_tab (a int PRIMARY KEY, b int UNIQUE, c int UNIQUE)",
        "CREATE TABLE conf_tab_2_p1 (a int PRIMARY KEY, b int, c int, UNIQUE (a, b))",
        f"INSERT INTO conf_tab VALUES {ROWS}",
        "INSERT INTO conf_tab_2_p1 VALUES (55, 2, 3)",
    )
    flow.lake("CREATE NAMESPACE IF NOT EXISTS {t}")
    for table, rows in (("conf_tab", ROWS), ("conf_tab_2_p1", "(55, 2, 3)")):
        flow.lake(f"CREATE TABLE {{t}}.{table} (a int, b int, c int)")
        flow.lake(f"INSERT INTO {{t}}.{table} VALUES {rows}")
    name = flow.subscribe(
        "sub_tab",
        ["pub_tab"],
        tables={
            "conf_tab": {"adopt": True, "keys": [["b"], ["c"]]},
            "conf_tab_2_p1": {"adopt": True, "keys": [["a", "b"]]},
        },
    )
    flow.checkpoint("copied", "conf_tab")
    steps = {
        "insert": ("INSERT INTO conf_tab VALUES (2, 3, 4)", "conf_tab", "a IN (2, 3, 4)"),
        "update": ("UPDATE conf_tab SET a = 6, b = 7, c = 8 WHERE a = 5", "conf_tab", "a > 5"),
        "leaf": ("INSERT INTO conf_tab_2 VALUES (55, 2, 3)", "conf_tab_2_p1", "a = 55"),
    }
    for label, (statement, table, in_the_way) in steps.items():
        if label == "update":
            flow.pub.run("INSERT INTO conf_tab VALUES (5, 5, 5)")
            flow.catch_up()
        flow.facts[label] = _stopped(flow, name, statement)
        flow.sub.run(f"DELETE FROM {table} WHERE {in_the_way}")
        flow.lake(f"DELETE FROM {{t}}.{table} WHERE {in_the_way}")
        flow.checkpoint(label, table)
    return flow


def _stopped(flow: Flow, name: str, statement: str) -> dict[str, Any]:
    """What ours says once both sides have counted one more such conflict."""
    before = _counted(flow, name)
    flow.pub.run(statement)

    def met() -> bool:
        return all(now > then for now, then in zip(_counted(flow, name), before, strict=True))

    def told() -> list[dict[str, Any]]:
        return [row for row in flow.pgsub.status("last_errors") if row["subname"] == name]

    wait_until(met, 120, flow.pgsub.log_tail)
    # Counted first, told when the worker ends.
    return wait_until(told, 120, flow.pgsub.log_tail)[0]


def _counted(flow: Flow, name: str) -> tuple[int, int]:
    """Ours and the twin's."""
    rows = flow.pgsub.status("pg_stat_subscription_stats")
    query = f"SELECT {COLUMN} FROM pg_stat_subscription_stats WHERE subname = %s"
    native = flow.sub.value(query, (f"{name}_native",))
    return sum(row[COLUMN] for row in rows if row["subname"] == name), int(native)


def _keys(error: dict[str, Any]) -> list[str]:
    assert "conflict=multiple_unique_conflicts" in error["message"]
    return [
        line[: line.index(")") + 1] for line in error["detail"].splitlines()[:3] if "Key" in line
    ]


def test_s_035_1_an_insert_that_meets_several_keys_tells_of_all(flow: Flow) -> None:
    assert _keys(flow.facts["insert"]) == ["Key (a)", "Key (b)", "Key (c)"]
    assert (2, 3, 4) in flow.same("insert", "conf_tab")


def test_s_035_2_so_does_an_update(flow: Flow) -> None:
    assert _keys(flow.facts["update"]) == ["Key (a)", "Key (b)", "Key (c)"]
    assert flow.same("update", "conf_tab") == [(2, 3, 4), (6, 7, 8)]


def test_s_035_3_so_does_an_insert_into_a_partition(flow: Flow) -> None:
    assert _keys(flow.facts["leaf"]) == ["Key (a)", "Key (a, b)"]
    assert flow.same("leaf", "conf_tab_2_p1") == [(55, 2, 3)]
