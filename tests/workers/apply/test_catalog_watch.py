"""The two watches take their turns beside each other."""

from __future__ import annotations

from collections.abc import Collection

from config.monitor_limits import ALL_TABLES_SECONDS
from tests.workers.subscribed import Subscribed
from workers.apply.catalog_watch import CatalogWatch
from workers.apply.name_watch import NameWatch
from workers.apply.text_watch import TextWatch
from workers.publisher.changing_text import TextTypes


def test_types_of_a_table_that_is_another_one_are_not_compared(world: Subscribed) -> None:
    """The new table's types say nothing about the old rows."""
    now = [0.0]
    asked: list[set[int]] = []
    for name, relid in (("a", 1), ("b", 2)):
        rel = world.rel(name)
        world.store.update_rel(rel.srsubid, rel.srrelid, remote_relid=relid)

    def types(relids: Collection[int]) -> dict[int, TextTypes]:
        asked.append(set(relids))
        return {relid: TextTypes(numbers={"id": 1}) for relid in relids}

    watch = CatalogWatch(
        NameWatch(world.store, lambda _: {("public", "a"): 3, ("public", "b"): 2}, lambda: now[0]),
        TextWatch(world.store, types, lambda: now[0]),
    )
    worker = world.worker()
    watch.turn(worker)
    now[0] = ALL_TABLES_SECONDS
    watch.turn(worker)
    assert asked == [{1, 2}, {2}]
    assert world.rel("a").other_relid == 3
