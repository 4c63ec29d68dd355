"""The two watches take their turns beside each other."""

from __future__ import annotations

from config.monitor_limits import ALL_TABLES_SECONDS
from tests.workers.subscribed import Subscribed
from tests.workers.text_questions import TextPublisher
from workers.apply.catalog_watch import CatalogWatch
from workers.apply.name_watch import NameWatch
from workers.apply.text_watch import TextWatch
from workers.publisher.changing_text import TextTypes


def test_types_of_a_table_that_is_another_one_are_not_compared(world: Subscribed) -> None:
    """The new table's types say nothing about the old rows."""
    now = [0.0]
    publisher = TextPublisher({1: TextTypes(numbers={"id": 1}), 2: TextTypes(numbers={"id": 1})})
    for name, relid in (("a", 1), ("b", 2)):
        rel = world.rel(name)
        world.store.update_rel(rel.srsubid, rel.srrelid, remote_relid=relid)

    watch = CatalogWatch(
        NameWatch(world.store, lambda _: {("public", "a"): 3, ("public", "b"): 2}, lambda: now[0]),
        TextWatch(world.store, publisher, lambda: now[0]),
    )
    worker = world.worker()
    watch.turn(worker)
    now[0] = ALL_TABLES_SECONDS
    watch.turn(worker)
    assert publisher.asked == [{1, 2}, {2}]
    assert world.rel("a").other_relid == 3
