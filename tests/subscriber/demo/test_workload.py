"""The demo's shop and its workload."""

from __future__ import annotations

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from subscriber.demo.proof import publisher_query
from subscriber.demo.workload import ORDERS, TABLES, Workload, fill
from tests.fix_publisher import Database
from tests.waiting import wait_until


def test_the_shop_is_large_enough_and_its_workload_changes_every_kind(
    publisher: EmbeddedPublisher, database: Database
) -> None:
    with publisher.connect(database.name) as connection:
        fill(connection)
    counts = {
        table.name: database.value(f"SELECT count(*) FROM shop.{table.name}") for table in TABLES
    }
    assert counts == {table.name: table.rows for table in TABLES}
    assert max(counts.values()) >= 200_000

    workload = Workload(lambda: database.dsn, rate=500)
    workload.start()
    wait_until(lambda: workload.by_kind["deleted"] > 5 or workload.error, 30)
    workload.stop()
    assert workload.error is None
    assert min(workload.by_kind[kind] for kind in ("inserted", "updated", "deleted")) > 0
    assert database.value("SELECT count(*) FROM shop.orders") > ORDERS

    answers = database.execute(publisher_query())
    assert [name for name, _, _ in answers] == [table.name for table in TABLES]
    before = {name: total for name, _, total in answers}
    database.execute("UPDATE shop.orders SET note = '' WHERE id = 1")  # NULL is not ''
    after = {name: total for name, _, total in database.execute(publisher_query())}
    assert {name for name in before if before[name] != after[name]} == {"orders"}
