"""A table that returns by itself: its rows are replaced, and not doubled."""

from __future__ import annotations

import pytest

from subscriber.commands.alter_to_file import bring_in_line
from subscriber.commands.published.auto_refresh import refresh_by_itself
from tests.subscriber.commands.subscribed import names, row
from tests.subscriber.twins import Around, PublishedTable, statement


@pytest.mark.parametrize("replaces", [True, False])
def test_a_table_that_returns_has_its_rows_replaced(world: Around, replaces: bool) -> None:
    """By hand the copy is added to the rows, as in PostgreSQL."""
    owner = row(world).subuuid if replaces else None
    world.lake.add("b", owner=owner)
    world.publisher.tables["b"] = PublishedTable()
    if not replaces:
        with pytest.raises(Exception, match="already exists"):
            refresh_by_itself("mysub", world.context)
        return
    refresh_by_itself("mysub", world.context)
    (rel,) = [rel for rel in world.store.rels(row(world).oid) if rel.relname == "b"]
    assert rel.recopy


def test_an_adopted_table_does_not_return_by_itself(world: Around) -> None:
    """Others join meanwhile."""
    sub = row(world)
    options = statement(tables={"public.b": {"adopt": True}}).tables
    world.store.update_subscription(sub.oid, tables=options)
    world.lake.add("b", owner=sub.subuuid)
    world.publisher.tables |= {"b": PublishedTable(), "c": PublishedTable()}
    assert refresh_by_itself("mysub", world.context)
    (said,) = [each for each in world.notices if each.severity == "WARNING"]
    assert "pgsub refresh mysub" in (said.hint or "")
    assert names(world) == [("a", "i"), ("c", "i")]


@pytest.mark.parametrize("refresh", ["auto", "manual"])
def test_at_a_start_of_the_launcher_too(world: Around, refresh: str) -> None:
    """The file says which; by hand the copy is added to the rows, as in PostgreSQL."""
    world.lake.add("b", owner=row(world).subuuid)
    world.publisher.tables["b"] = PublishedTable()
    bring_in_line(row(world), statement(refresh=refresh), world.context)
    (rel,) = [rel for rel in world.store.rels(row(world).oid) if rel.relname == "b"]
    assert rel.recopy == (refresh == "auto")
