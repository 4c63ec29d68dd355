"""A copy in the place of another has the publisher's columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.errcodes import ReplicationError
from tests.workers.copying import IDENT, Copying, PublisherTwin, copying
from workers.changes.remembered_columns import from_text
from workers.lake.table import MAIN


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


def test_a_first_copy_again_has_the_columns_of_now(world: Copying) -> None:
    """The attempt before made the lake table, and no row of it was ever published."""
    world.copy(PublisherTwin([b"1,2\n"], columns=("id", "v")))
    world.dest.drop_branches(IDENT)
    rel, _ = world.copy(PublisherTwin([b"1,2,3\n"], columns=("id", "x", "w")))
    assert names(world) == ["id", "v", "w"]  # the publication renames v
    assert rel.copied


def test_a_first_copy_leaves_the_columns_of_a_table_with_rows(world: Copying) -> None:
    world.copy(PublisherTwin([b"1,2\n"], columns=("id", "v")))
    world.dest.drop_branches(IDENT)
    world.dest.lake.commit(world.dest.lake.tables[IDENT], MAIN, [{"id": 7, "v": 7}])
    with pytest.raises(ReplicationError, match="missing replicated column"):
        world.copy(PublisherTwin([b"1,2,3\n"], columns=("id", "v", "w")))
