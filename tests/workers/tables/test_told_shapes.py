"""Shapes that triggers told, by position: what a part that comes again may know."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from catalog.pg_lsn import LSN
from catalog.schema_changes import StoredShape
from tests.workers.changes.test_captured_shape import FOUND, TYPE, shape
from tests.workers.subscribed import EPOCH, Subscribed
from tests.workers.transactions import relation, row
from tests.workers.trigger_messages import KEY, sealed, told_batch
from workers.changes.by_table import Run, frame_batch
from workers.changes.captured_shape import CapturedShape, ToldInStream
from workers.changes.relation_map import LogicalRepRelMap
from workers.changes.remembered_columns import RememberedColumn, RememberedColumns
from workers.proto.messages import Insert, LogicalMessage, Message
from workers.stream.batch import Batch
from workers.tables.told_shapes import ToldShapes, is_same

A = relation(7, "a", "id", "v")
ROW: list[Message] = [A, Insert(7, row("1", "2"))]


def told(**changed: Any) -> LogicalMessage:
    return sealed({**FOUND, **changed})


def framed_runs(part: Batch) -> tuple[list[Run], tuple[CapturedShape, ...]]:
    relmap = LogicalRepRelMap()
    relmap.told = ToldInStream(KEY)
    framed = frame_batch(part, relmap)
    every = dict.fromkeys(framed.targets, part.final_lsn > 0)
    return framed.runs(every).get(("public", "a"), []), framed.shapes


def store(world: Subscribed, lsn: int, found: CapturedShape) -> None:
    rel = world.store.update_rel(world.sub.oid, world.rel("a").srrelid, remote_relid=7)
    stored = StoredShape(LSN(lsn), found.text, found.rewritten, found.using)
    world.store.put_captured_shape(rel.srsubid, rel.srrelid, EPOCH, stored)


@pytest.mark.parametrize(("stored", "counts"), [(99, True), (100, False), (200, False)])
def test_a_stored_shape_counts_behind_its_transaction(
    world: Subscribed, stored: int, counts: bool
) -> None:
    store(world, stored, shape(rewritten=TYPE))
    part = told_batch(ROW)
    found = ToldShapes(world.store).at(world.rel("a"), framed_runs(part)[0][0], part)
    assert found == (replace(shape(rewritten=TYPE), lsn=LSN(stored)) if counts else None)


@pytest.mark.parametrize(
    ("stored", "rewritten"),
    [
        (50, TYPE),  # no row has followed the values of before
        (100, TYPE),  # another shape of the transaction
        (200, 0),  # the message comes again, and was followed
    ],
)
def test_a_shape_of_the_batch_has_new_values_of_before(
    world: Subscribed, stored: int, rewritten: int
) -> None:
    store(world, stored, shape(rewritten=TYPE, version=1))
    part = told_batch([told(), *ROW])
    found = ToldShapes(world.store).at(world.rel("a"), framed_runs(part)[0][0], part)
    assert found is not None
    assert (found.text, found.rewritten) == (shape().text, rewritten)


def test_a_message_that_comes_again_has_the_stored_flags(world: Subscribed) -> None:
    store(world, 100, replace(shape(rewritten=TYPE), rewritten=0))
    part = told_batch([told(rewritten=TYPE), *ROW])
    shapes = ToldShapes(world.store)
    found = shapes.at(world.rel("a"), framed_runs(part)[0][0], part)
    assert found is not None
    assert found.rewritten == 0
    again = told_batch([told(rewritten=TYPE)])
    shapes.keep(world.sub, framed_runs(again)[1], {})
    stored = world.store.captured_shape(world.sub.oid, world.rel("a").srrelid)
    assert stored is not None
    assert stored.rewritten == 0


@pytest.mark.parametrize("floor", [99, 100])
def test_a_shape_of_before_the_copy_does_not_count(world: Subscribed, floor: int) -> None:
    part = told_batch([told(rewritten=TYPE)], ROW)
    world.store.update_rel(world.sub.oid, world.rel("a").srrelid, floor=LSN(floor))
    found = ToldShapes(world.store).at(world.rel("a"), framed_runs(part)[0][0], part)
    assert found == (shape(rewritten=TYPE) if floor == 99 else None)


def test_a_shape_of_another_copy_does_not_count(world: Subscribed) -> None:
    store(world, 50, shape())
    shapes, part = ToldShapes(world.store), told_batch(ROW)
    run = framed_runs(part)[0][0]
    assert shapes.at(world.rel("a"), run, part) is not None
    world.store.update_rel(world.sub.oid, world.rel("a").srrelid, epoch="next")
    assert shapes.at(world.rel("a"), run, part) is None


@pytest.mark.parametrize("follows", [False, True])
def test_the_last_shape_is_stored_and_waits_for_a_row(world: Subscribed, follows: bool) -> None:
    rel = world.store.update_rel(world.sub.oid, world.rel("a").srrelid, remote_relid=7)
    part = told_batch([told(), told(rewritten=TYPE), *(ROW if follows else [])])
    runs, told_shapes = framed_runs(part)
    shapes = ToldShapes(world.store)
    shapes.keep(world.sub, told_shapes, {("public", "a"): runs})
    stored = world.store.captured_shape(rel.srsubid, rel.srrelid)
    assert stored is not None
    awaited = 0 if follows else TYPE
    assert (stored.lsn, stored.rewritten) == (LSN(100), awaited)
    assert stored.shape == shape(rewritten=TYPE).text
    later = told_batch([], ROW)
    run = framed_runs(later)[0][0]
    again = shapes.at(rel, run, later)
    assert again == replace(shape(rewritten=TYPE), rewritten=awaited)
    shapes.followed(rel, again)
    assert shapes.at(rel, run, later) == replace(shape(rewritten=TYPE), rewritten=0)


def test_new_values_wait_over_a_later_shape(world: Subscribed) -> None:
    store(world, 50, shape(rewritten=TYPE))
    shapes = ToldShapes(world.store)
    shapes.keep(world.sub, framed_runs(told_batch([told()]))[1], {})
    stored = world.store.captured_shape(world.sub.oid, world.rel("a").srrelid)
    assert stored is not None
    assert (stored.lsn, stored.shape, stored.rewritten) == (LSN(100), shape().text, TYPE)


def test_a_shape_that_no_message_is_like_is_forgotten(world: Subscribed) -> None:
    """The triggers were disabled for a while."""
    store(world, 50, shape())
    rel, shapes, part = world.rel("a"), ToldShapes(world.store), told_batch(ROW)
    run = framed_runs(part)[0][0]
    found = shapes.at(rel, run, part)
    assert shapes.like(rel, A, found) == found
    assert shapes.like(rel, relation(7, "a", "id", "w"), found) is None
    assert shapes.at(rel, run, part) is None
    assert world.store.captured_shape(rel.srsubid, rel.srrelid) is None


def test_equal_columns_are_the_same_only_under_their_numbers() -> None:
    def before(second: int) -> RememberedColumns:
        columns = [RememberedColumn(n, c, 23, -1, 23, n) for n, c in ((1, "id"), (second, "v"))]
        return RememberedColumns("e", 7, second, {}, tuple(columns))

    assert is_same(before(2), A, None)
    assert is_same(before(3), A, shape())
    assert not is_same(before(2), A, shape())
    assert not is_same(before(3), A, shape(rewritten=TYPE))
    assert not is_same(before(3), relation(7, "a", "id", "w"), None)
