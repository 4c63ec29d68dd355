"""Which commands on the publisher end the trust in a table's keys, and which do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.integration.flow import Flow
from tests.waiting import wait_until


def trusted(flow: Flow, name: str) -> dict[str, bool]:
    """The tables of a subscription, and whether their inserted keys are known to be new."""
    found = {row["subname"]: row["oid"] for row in flow.pgsub.status("pg_subscription")}
    return {
        row["relname"]: row["copied"]
        for row in flow.pgsub.status("pg_subscription_rel")
        if row["srsubid"] == found[name] and row["relname"] != "spot"
    }


@pytest.mark.postgres
@pytest.mark.spark
def test_a_table_that_was_unlogged_for_a_while(
    publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]
) -> None:
    """The DELETE of the meantime is not sent: the next INSERT of the key doubles no row."""
    flow = make_flow(publisher, "unlogged")
    flow.both(
        "CREATE TABLE loads (id int PRIMARY KEY, v text)",
        "CREATE TABLE nightly (id int PRIMARY KEY, v text)",
        "CREATE TABLE packed (id int PRIMARY KEY, v text)",
    )
    flow.pub.run(
        "INSERT INTO loads VALUES (1, 'a'), (2, 'b')",
        "INSERT INTO nightly VALUES (1, 'a')",
        "INSERT INTO packed VALUES (1, 'a')",
        "CREATE PUBLICATION pub FOR ALL TABLES",
    )
    name = flow.subscribe("sub", ["pub"])
    flow.checkpoint("copied", "loads", "nightly", "packed")
    assert trusted(flow, name) == {"loads": True, "nightly": True, "packed": True}
    flow.pub.run(
        "TRUNCATE nightly",
        "INSERT INTO nightly VALUES (1, 'b')",
        "VACUUM FULL packed",
        "INSERT INTO packed VALUES (2, 'b')",
        "INSERT INTO loads VALUES (3, 'c')",
    )
    flow.checkpoint("emptied", "nightly", "packed")
    flow.same("emptied", "nightly")
    flow.same("emptied", "packed")
    flow.pub.run("INSERT INTO nightly VALUES (2, 'c')")
    flow.catch_up()
    assert trusted(flow, name) == {"loads": True, "nightly": True, "packed": False}
    flow.pub.run(
        "ALTER TABLE loads SET UNLOGGED",
        "DELETE FROM loads WHERE id = 1",
        "ALTER TABLE loads SET LOGGED",
        "INSERT INTO loads VALUES (1, 'new')",
    )
    flow.wait_failing(name)
    assert trusted(flow, name) == {"loads": False, "nightly": True, "packed": False}
    flow.record("stopped", "loads")
    assert sorted(flow.same("stopped", "loads")) == [(1, "a"), (2, "b"), (3, "c")]
    assert "23505" in flow.pgsub.log_tail()
    flow.pgsub.command("refresh", name, "--recopy", "unlogged.loads")
    flow.sub.run("TRUNCATE loads")
    flow.pgsub.wait(name)
    ours = flow.pgsub.rows("unlogged", "loads", ["id", "v"])
    assert sorted(ours) == flow.pub.execute("SELECT * FROM loads ORDER BY id")
    assert trusted(flow, name)["loads"]


@pytest.mark.postgres
@pytest.mark.spark
def test_a_table_that_is_swapped_in_is_told_without_a_row_change(
    publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]
) -> None:
    """A nightly job renames a staging table into place and changes no row until the next night.

    So it is with a column that is dropped and added again.
    """
    flow = make_flow(publisher, "idle_swap")
    flow.both(
        "CREATE TABLE orders (id int PRIMARY KEY, note text)",
        "CREATE TABLE plain (id int PRIMARY KEY, n int)",
    )
    flow.pub.run(
        "INSERT INTO orders VALUES (1, 'old'), (2, 'old')",
        "INSERT INTO plain VALUES (1, 1)",
        "CREATE PUBLICATION pub FOR TABLES IN SCHEMA idle_swap",
    )
    stop = {"on_schema_change": "stop"}
    name = flow.subscribe("sub", ["pub"], tables={"orders": stop, "plain": stop})
    flow.checkpoint("copied", "orders", "plain")
    flow.both("CREATE TABLE orders_new (id int PRIMARY KEY, note text)")
    flow.pub.run("INSERT INTO orders_new VALUES (1, 'new'), (3, 'new')")
    flow.catch_up()
    for side in (flow.pub, flow.sub):
        side.execute(
            "BEGIN; ALTER TABLE orders RENAME TO orders_old;"
            " ALTER TABLE orders_new RENAME TO orders; DROP TABLE orders_old;"
            " ALTER TABLE plain DROP COLUMN n; ALTER TABLE plain ADD COLUMN n int DEFAULT 7; COMMIT"
        )
    told = (
        'table "idle_swap.orders" is another one on the publisher than the one that was copied',
        'column "n" was dropped and added again',
        f"pgsub refresh {name} --recopy idle_swap.plain",
    )

    def said() -> str:
        return flow.pgsub.command("status").stdout

    wait_until(lambda: all(each in said() for each in told), 150, flow.pgsub.log_tail)
    assert trusted(flow, name) == {"orders": False, "plain": True}
    flow.alter(name, "REFRESH PUBLICATION")
    flow.pgsub.command("refresh", name, "--recopy", "idle_swap.plain")
    flow.checkpoint("refreshed", "orders")
    assert sorted(flow.same("refreshed", "orders")) == [(1, "new"), (3, "new")]
    assert flow.pgsub.rows("idle_swap", "plain", ["id", "n"]) == [(1, 7)]
    assert not any(each in said() for each in told)
