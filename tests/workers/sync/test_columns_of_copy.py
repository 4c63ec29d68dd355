"""A copy in the place of another has the publisher's columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.workers.copying import IDENT, Copying, PublisherTwin, copying
from workers.changes.remembered_columns import from_text


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Copying]:
    yield from copying(tmp_path)


def names(world: Copying) -> list[str]:
    return [column.name for column in world.dest.lake.tables[IDENT].columns]


def test_a_first_copy_leaves_the_columns_as_they_are(world: Copying) -> None:
    world.copy(PublisherTwin([b"1,2\n"], columns=("id", "v")))
    assert names(world) == ["id", "v"]


def test_a_copy_again_adds_columns_and_keeps_what_is_gone(world: Copying) -> None:
    rel, _ = world.copy(PublisherTwin([b"1,2\n"], columns=("id", "v")))
    again = replace(world, rel=replace(rel, recopy=True))
    again.copy(PublisherTwin([b"1,2,3\n"], columns=("id", "v", "w")))
    assert names(world) == ["id", "v", "w"]
    stored = world.process.store.columns(world.sub.oid, world.rel.srrelid)
    assert stored is not None
    assert [each.name for each in from_text(stored).columns] == ["id", "v", "w"]
