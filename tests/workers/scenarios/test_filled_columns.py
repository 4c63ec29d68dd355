"""A column with a stored default: deaths, a large table, a transaction with rows from before.

The lake is in memory, and a reader looks at each place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from catalog.errcodes import ReplicationError
from tests.workers.apply.test_follow_schema import (
    INT4,
    NULL,
    WIDER,
    A,
    Publisher,
    remember,
    rows,
    with_default,
    worker,
)
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, relation, row
from workers.process import failpoints
from workers.proto.messages import Delete, Insert, Message, Update
from workers.publisher.table_shape import ShapeColumn, TableShape


@pytest.fixture
def publisher() -> Publisher:
    return Publisher()


FILL_PLACES = (
    failpoints.BEFORE_SCHEMA_CHANGE,
    failpoints.COLUMN_TO_FILL,
    failpoints.COLUMN_FILLED,
    failpoints.SCHEMA_CHANGED,
    failpoints.SCHEMA_STORED,
)


@pytest.mark.parametrize("name", FILL_PLACES)
@pytest.mark.parametrize("ahead", [False, True])
def test_a_worker_that_dies_while_it_fills_a_column(
    world: Subscribed,
    publisher: Publisher,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    ahead: bool,
) -> None:
    """``ahead``: another column with a default is there when the successor asks."""
    remember(world, publisher)
    publisher.shape = with_default()
    received = batch(
        [A, Insert(1, row("2", "20"))], [WIDER, Insert(1, (*row("3", "30"), NULL))], after=100
    )
    seen: list[list[dict[str, Any]]] = []

    def reach(at: str) -> None:
        seen.append(rows(world))
        if at == name:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "reach", reach)
        with pytest.raises(KeyboardInterrupt):
            worker(world, publisher).apply_batch(received)
    if ahead:
        more = ShapeColumn(4, "z", 23, -1, INT4, has_missing=True, stored="8")
        publisher.shape = replace(publisher.shape, columns=(*publisher.shape.columns, more))
    worker(world, publisher).apply_batch(received)
    assert rows(world) == [
        {"id": 1, "v": 10, "w": 7},
        {"id": 2, "v": 20, "w": 7},
        {"id": 3, "v": 30, "w": None},
    ]
    assert not [each for shown in seen for each in shown if each.get("w", 7) != 7]


def in_the_middle() -> list[Message]:
    """Rows of a transaction from before and behind the change."""
    return [
        *(A, Update(1, None, None, row("1", "11")), Insert(1, row("2", "20"))),
        *(Insert(1, row("3", "30")), Delete(1, "K", row("3", "30"))),
        *(WIDER, Insert(1, row("4", "40", "400")), Insert(1, (*row("5", "50"), NULL))),
        *(Update(1, None, None, row("2", "21", "8")),),
    ]


def test_a_default_in_the_middle_of_a_transaction(
    world: Subscribed, publisher: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    """A row that the transaction has inserted before has the default too."""
    caplog.set_level("INFO")
    remember(world, publisher)
    publisher.shape = with_default()
    applier = worker(world, publisher)
    before: list[Message] = [A, Insert(1, row("6", "60"))]
    later: list[Message] = [WIDER, Insert(1, row("7", "70", "700"))]
    more = [*in_the_middle()[:3], Insert(1, row("8", "80")), *in_the_middle()[3:]]
    applier.apply_batch(batch(before, more, later, after=100))
    assert [(each["id"], each["v"], each["w"]) for each in rows(world)] == [
        (1, 11, 7),
        (2, 21, 8),
        (4, 40, 400),
        (5, 50, None),
        (6, 60, 7),
        (7, 70, 700),
        (8, 80, 7),
    ]
    (said,) = [each for each in caplog.messages if "action=filling_columns" in each]
    assert 'lake table "public.a" are written again with a value for "w"' in said
    applier.apply_batch(batch([A, Insert(1, row("9", "90"))], after=900))
    assert rows(world)[-1]["w"] is None, "the value was for that transaction alone"


def test_a_default_behind_a_slice_of_a_transaction_is_not_followed(
    world: Subscribed, publisher: Publisher
) -> None:
    """The first slice is on the branch, and may not be published with the default."""
    remember(world, publisher)
    publisher.shape = with_default()
    applier = worker(world, publisher)
    applier.work_mem = 1
    with pytest.raises(ReplicationError, match="cannot be followed"):
        applier.apply_batch(batch(in_the_middle(), after=100))
    assert rows(world) == [{"id": 1, "v": 10}]


def with_another() -> TableShape:
    """A later column z was added with 8 as the default."""
    found = with_default()
    more = ShapeColumn(4, "z", 23, -1, INT4, has_missing=True, stored="8", stored_in=frozenset({1}))
    return replace(found, columns=(*found.columns, more))


def test_two_defaults_in_one_transaction(world: Subscribed, publisher: Publisher) -> None:
    """A row from before both has both, and a row from between has the second."""
    remember(world, publisher)
    publisher.shape = with_another()
    changes: list[Message] = [A, Insert(1, row("2", "20")), WIDER, Insert(1, row("3", "30", "300"))]
    widest = relation(1, "a", "id", "v", "w", "z")
    changes += [widest, Insert(1, row("4", "40", "400", "4000"))]
    worker(world, publisher).apply_batch(batch(changes, after=100))
    assert [(each["id"], each["w"], each["z"]) for each in rows(world)] == [
        (1, 7, 8),
        (2, 7, 8),
        (3, 300, 8),
        (4, 400, 4000),
    ]


def test_rows_under_full_are_found_by_the_default(world: Subscribed, publisher: Publisher) -> None:
    """The publisher sends the default with the old row: NULL in the lake would hide the row."""
    old = relation(1, "a", "id", "v", identity="f")
    new = relation(1, "a", "id", "v", "w", identity="f")
    there: list[Message] = [old, Insert(1, row("1", "10")), Insert(1, row("2", "20"))]
    worker(world, publisher).apply_batch(batch(there))
    publisher.shape = with_default()
    changes: list[Message] = [
        *(new, Delete(1, "O", row("1", "10", "7"))),
        Update(1, "O", row("2", "20", "7"), row("2", "21", "7")),
    ]
    worker(world, publisher, on_added_default="null").apply_batch(batch(changes, after=200))
    assert rows(world) == [{"id": 2, "v": 21, "w": 7}]


@pytest.mark.parametrize("name", FILL_PLACES)
def test_a_death_in_the_middle_of_a_transaction_with_rows_from_before(
    world: Subscribed, publisher: Publisher, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The successor writes the right rows, or has the table copied again."""
    remember(world, publisher)
    world.store.update_rel(world.sub.oid, world.rel("a").srrelid, remote_relid=1)
    publisher.shape = with_default()
    received = batch(in_the_middle(), after=100)

    def reach(at: str) -> None:
        if at == name:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "reach", reach)
        with pytest.raises(KeyboardInterrupt):
            worker(world, publisher).apply_batch(received)
    worker(world, publisher).apply_batch(received)
    found = [(each["id"], each.get("w")) for each in rows(world)]
    assert world.rel("a").recopy or found == [(1, 7), (2, 8), (4, 400), (5, None)]


def test_a_large_table_is_not_filled_by_itself(
    world: Subscribed, publisher: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    remember(world, publisher)
    world.store.update_rel(world.sub.oid, world.rel("a").srrelid, remote_relid=1)
    publisher.shape, publisher.bytes = with_default(), 2 << 20
    new = batch([WIDER, Insert(1, row("3", "30", "300"))], after=100)
    worker(world, publisher, auto_recopy_max_bytes="1MB").apply_batch(new)
    rel = world.rel("a")
    assert rel.awaits_resume
    assert "too large to be copied again" in (rel.suspend_error or "")
    (told,) = [vars(each) for each in caplog.records if "DETAIL" in vars(each)]
    assert 'Lake column "w" has to be filled in all rows. The table has 2048 kB' in told["DETAIL"]
    assert "pgsub resume mysub public.a" in told["HINT"]
    assert rows(world) == [{"id": 1, "v": 10}]
