"""The columns of a copy are known by number, in the lake table and in the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.pg_subscription import TableOptions
from tests.workers.copying import IDENT, Copying, PublisherTwin, copying
from workers.changes.remembered_columns import RememberedColumn, from_text


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Copying]:
    yield from copying(tmp_path)


def test_a_copy_remembers_its_columns(world: Copying) -> None:
    world.copy(PublisherTwin([b"1,2\n"], columns=("id", "v")))
    stored = world.process.store.columns(world.sub.oid, world.rel.srrelid)
    assert stored is not None
    found = from_text(stored)
    assert (found.epoch, found.relid, found.natts, found.files) == ("epoch", 16389, 2, {16389: 5})
    assert found.columns == (
        RememberedColumn(1, "id", 23, -1, 23, 1),
        RememberedColumn(2, "v", 23, -1, 23, 2),
    )
    assert world.dest.lake.tables[IDENT].publisher_columns == stored


def test_the_columns_of_a_shared_lake_table_are_not_followed(world: Copying) -> None:
    sub = replace(world.sub, tables={"public.a": TableOptions(shared=True)})
    shared = replace(world, sub=sub)
    shared.copy(PublisherTwin([b"1\n"]))
    assert world.process.store.columns(world.sub.oid, world.rel.srrelid) is None
    assert world.dest.lake.tables[IDENT].publisher_columns == ""
