"""The columns of a copy are known by number, in the lake table and in the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from catalog.pg_subscription import TableOptions
from tests.workers.copying import IDENT, Copying, PublisherTwin, copying
from workers.changes.remembered_columns import RememberedColumn, from_text
from workers.lake.memory.destination import MemoryDestination
from workers.lake.table import LakeIdent, LakeTable


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


def test_a_new_lake_table_is_made_with_the_columns(
    world: Copying, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No commit of its own; a table that was there gets the columns of this copy by one."""
    calls: list[LakeIdent] = []
    change = MemoryDestination.change_columns

    def counted(dest: MemoryDestination, ident: LakeIdent, *rest: Any) -> LakeTable:
        calls.append(ident)
        return change(dest, ident, *rest)

    monkeypatch.setattr(MemoryDestination, "change_columns", counted)
    world.copy(PublisherTwin([b"1,2\n"], columns=("id", "v")))
    assert calls == []
    store, rel = world.process.store, world.rel
    later = store.update_rel(rel.srsubid, rel.srrelid, epoch="later", recopy=True)
    again = replace(world, rel=later)
    again.copy(PublisherTwin([b"1,2\n"], columns=("id", "v")))
    assert calls == [IDENT]
    assert from_text(world.dest.lake.tables[IDENT].publisher_columns).epoch == "later"


def test_the_columns_of_a_shared_lake_table_are_not_followed(world: Copying) -> None:
    sub = replace(world.sub, tables={"public.a": TableOptions(shared=True)})
    shared = replace(world, sub=sub)
    shared.copy(PublisherTwin([b"1\n"]))
    assert world.process.store.columns(world.sub.oid, world.rel.srrelid) is None
    assert world.dest.lake.tables[IDENT].publisher_columns == ""
