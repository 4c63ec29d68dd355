"""The publisher's catalog is ahead of the message: what came later is not taken for granted.

The lake is in memory. A table whose rows are not certain is copied again.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.workers.apply.test_follow_schema import (
    RENAMED,
    WIDER,
    Publisher,
    remember,
    rows,
    shape,
    worker,
)
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, relation, row
from workers.proto.messages import Insert
from workers.publisher.table_shape import TableShape


@pytest.fixture
def publisher(world: Subscribed) -> Publisher:
    found = Publisher()
    remember(world, found)
    world.store.update_rel(world.sub.oid, world.rel("a").srrelid, remote_relid=1)
    return found


@pytest.mark.parametrize(
    "later",
    [
        shape("id", "x", "z", file=6),  # a volatile default has the table rewritten
        replace(shape("id", "x", "z"), lists="7"),  # published by another list by now
    ],
)
def test_a_later_column_is_compared_with_what_was_known_before(
    world: Subscribed, publisher: Publisher, later: TableShape
) -> None:
    """The question for the renaming brings the files and lists of the later change."""
    publisher.shape = later
    renamed, more = RENAMED, relation(1, "a", "id", "x", "z")
    worker(world, publisher).apply_batch(batch([renamed, Insert(1, row("2", "20"))], after=100))
    assert rows(world) == [{"id": 1, "x": 10}, {"id": 2, "x": 20}]
    worker(world, publisher).apply_batch(batch([more, Insert(1, row("3", "3", "3"))], after=200))
    assert world.rel("a").recopy
    assert "z" not in rows(world)[0]


def test_a_new_column_below_which_another_one_was_renamed(
    world: Subscribed, publisher: Publisher
) -> None:
    """Trace: w is added; a row; w is renamed to x, and another w is added with 9 as the default."""
    found = shape("id", "v", "x", "w")
    new = replace(found.columns[3], has_missing=True, stored="9", stored_in=frozenset({1}))
    publisher.shape = replace(found, columns=(*found.columns[:3], new))
    message = batch([WIDER, Insert(1, row("2", "20", "200"))], after=100)
    worker(world, publisher).apply_batch(message)
    assert world.rel("a").recopy
    assert rows(world) == [{"id": 1, "v": 10}]


@pytest.mark.parametrize(("files", "copied_again"), [({77: 99}, True), ({77: 77}, False)])
def test_no_known_partition_is_left(
    world: Subscribed, publisher: Publisher, files: dict[int, int], copied_again: bool
) -> None:
    """A partition with another file than its first may have been rewritten for a default."""
    publisher.shape = replace(shape("id", "v", "w"), files=files)
    message = batch([WIDER, Insert(1, row("2", "20", "200"))], after=100)
    worker(world, publisher).apply_batch(message)
    assert bool(world.rel("a").recopy) == copied_again
