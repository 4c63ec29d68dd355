"""The lake in memory follows columns as triggers of the publisher tell of them, over kills."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from config.guc import Settings
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, relation, row
from tests.workers.trigger_messages import KEY, sealed, told_batch
from workers.apply.apply_batch import Applier
from workers.apply.copy_again import CopyAgain
from workers.apply.follow_schema import SchemaFollower
from workers.changes.captured_shape import ToldInStream
from workers.lake.table import LakeIdent
from workers.proto.messages import Insert, LogicalMessage, Message, Relation
from workers.publisher.remote_table import ColumnType
from workers.publisher.table_shape import ShapeColumn, TableShape

INT4 = ColumnType(23, -1, "pg_catalog", "int4", "b")
INT4_ROW = [23, "pg_catalog", "int4", "b", 0, -1, 0, ","]


def told(
    *columns: str, numbers: Sequence[int] = (), dropped: Sequence[int] = (), **more: Any
) -> LogicalMessage:
    """A message of the triggers about table a, oid 1."""
    rows = [
        [n, name, 23, -1, False, False, None, "1:5", None, "1", None]
        for n, name in zip(numbers or range(1, len(columns) + 1), columns, strict=True)
    ]
    rows += [[n, f"dropped {n}", 0, -1, True, False, None, "1:5", None, "1", None] for n in dropped]
    found = {"version": 1, "relid": 1, "rewritten": 0, "using": False, "lists": []}
    return sealed({**found, "columns": rows, "types": [INT4_ROW], **more})


def named(*columns: str) -> Relation:
    return relation(1, "a", *columns)


def insert(*values: int) -> Insert:
    return Insert(1, row(*map(str, values)))


class Ahead:
    """A publisher whose catalog is ahead of everything that is sent: any answer would be wrong."""

    asked = 0

    def ask(self, relid: int) -> TableShape | None:
        self.asked += 1
        assert self.asked == 1, "only the first look is a question"
        columns = (ShapeColumn(1, "id", 23, -1, INT4), ShapeColumn(2, "v", 23, -1, INT4))
        return TableShape(1, columns, frozenset(), {1: 5})


@pytest.fixture
def publisher(world: Subscribed) -> Ahead:
    """The columns id and v are remembered, and a row is there."""
    rel = world.rel("a")
    world.store.update_rel(rel.srsubid, rel.srrelid, remote_relid=1)
    made = Ahead()
    worker(world, made).apply_batch(told_batch([named("id", "v"), insert(1, 10)]))
    return made


def worker(world: Subscribed, publisher: Ahead) -> Applier:
    applier = world.worker()
    applier.relmap.told = ToldInStream(KEY)
    assert world.writer is not None
    copies = CopyAgain(world.store, lambda _relid: 1000)
    settings = Settings()
    applier.schema = SchemaFollower(
        world.store, world.writer, publisher.ask, lambda: settings, copies
    )
    return applier


def rows(world: Subscribed) -> list[dict[str, Any]]:
    found = world.lake.rows(LakeIdent("public", "a"))
    return sorted(found, key=lambda each: int(each["id"]))


DDL: list[list[Message]] = [
    [told("id", "w")],
    [named("id", "w"), insert(2, 20)],
    [told("id", numbers=[1], dropped=[2]), told("id", "w", numbers=[1, 3], dropped=[2])],
    [named("id", "w"), insert(3, 30)],
    [named("id", "w"), insert(4, 40), told("id", "w", "x", numbers=[1, 3, 4], dropped=[2])],
    [named("id", "w", "x"), insert(5, 50, 55)],
]
"""v is renamed to w; w is dropped and added again; x is added behind a row of the transaction."""

AFTER: list[dict[str, Any]] = [
    {"id": 1, "w_dropped_2": 10, "w": None, "x": None},
    {"id": 2, "w_dropped_2": 20, "w": None, "x": None},
    {"id": 3, "w_dropped_2": None, "w": 30, "x": None},
    {"id": 4, "w_dropped_2": None, "w": 40, "x": None},
    {"id": 5, "w_dropped_2": None, "w": 50, "x": 55},
]


@pytest.mark.parametrize("ends", [[6], [1, 6], [3, 6], [1, 2, 3, 4, 5, 6], [5, 6]])
def test_a_rename_is_told_from_drop_and_add_whatever_comes_in_one_told_batch(
    world: Subscribed, publisher: Ahead, ends: list[int]
) -> None:
    """Each worker gets what the one before has not, and is killed. No question is asked."""
    begin = 0
    for end in ends:
        worker(world, publisher).apply_batch(told_batch(*DDL[begin:end], after=100 + 100 * begin))
        begin = end
    assert rows(world) == AFTER
    assert publisher.asked == 1


def test_a_part_that_comes_again_does_not_take_a_later_shape(
    world: Subscribed, publisher: Ahead
) -> None:
    """All shapes are stored, and the rows are not published: the table was set back."""
    applier = worker(world, publisher)
    applier.apply_batch(told_batch(*DDL[:2], after=100))
    stored = world.store.captured_shape(world.sub.oid, world.rel("a").srrelid)
    assert stored is not None
    assert (stored.lsn, stored.rewritten) == (LSN(200), False)


@pytest.mark.parametrize("apart", [False, True])
def test_values_that_are_computed_anew_have_the_table_copied_again(
    world: Subscribed, publisher: Ahead, apart: bool
) -> None:
    """The columns are the same, so no Relation message would tell."""
    told_so: list[Message] = [told("id", "v", rewritten=4)]
    follows: list[Message] = [named("id", "v"), insert(2, 20)]
    applier = worker(world, publisher)
    if apart:
        applier.apply_batch(told_batch(told_so, after=100))
        applier = worker(world, publisher)
        applier.apply_batch(told_batch(follows, after=200))
    else:
        applier.apply_batch(told_batch(told_so, follows, after=100))
    assert world.rel("a").suspended
    assert world.rel("a").recopy


BIG = relation(1, "a", "id", "v")
BIG = replace(BIG, columns=(BIG.columns[0], replace(BIG.columns[1], typid=20)))
INT8_ROW = [20, "pg_catalog", "int8", "b", 0, -1, 0, ","]


def widened(**more: Any) -> LogicalMessage:
    """v is a bigint, and the rows have another file."""
    rows = [
        [n, name, typid, -1, False, False, None, "1:6", None, "1", None]
        for n, name, typid in ((1, "id", 23), (2, "v", 20))
    ]
    types = [INT4_ROW, INT8_ROW]
    return told("id", "v", columns=rows, types=types, **{"rewritten": 4, **more})


def test_a_type_that_holds_more_is_promoted_although_rows_are_rewritten(
    world: Subscribed, publisher: Ahead
) -> None:
    """With USING it would be copied again: the values may be others."""
    applier = worker(world, publisher)
    applier.apply_batch(told_batch([widened(), BIG, insert(2, 1 << 40)], after=100))
    assert rows(world)[1] == {"id": 2, "v": 1 << 40}
    assert not world.rel("a").suspended
    applier.apply_batch(told_batch([widened(using=True), BIG, insert(3, 5)], after=200))
    assert world.rel("a").suspended


@pytest.mark.parametrize("published", [False, True])
def test_a_promotion_that_comes_again_is_no_copy(
    world: Subscribed, publisher: Ahead, published: bool
) -> None:
    """The worker dies behind the change of the column, before or behind the rows."""
    part = told_batch([widened(), BIG, insert(2, 1 << 40)], after=100)
    applier = worker(world, publisher)
    if published:
        applier.apply_batch(part)
    else:
        applier._write(part, None)
    worker(world, publisher).apply_batch(part)
    assert rows(world) == [{"id": 1, "v": 10}, {"id": 2, "v": 1 << 40}]
    assert not world.rel("a").suspended


def test_new_values_are_not_lost_behind_a_later_command(
    world: Subscribed, publisher: Ahead
) -> None:
    """Values are computed anew, then the column is renamed, and then comes a row."""
    worker(world, publisher).apply_batch(told_batch([told("id", "v", rewritten=4)], after=100))
    applier = worker(world, publisher)
    applier.apply_batch(told_batch([told("id", "w"), named("id", "w"), insert(2, 20)], after=200))
    assert world.rel("a").suspended


def test_a_shape_counts_in_the_next_slice_of_its_transaction(
    world: Subscribed, publisher: Ahead
) -> None:
    """v is dropped and added again under its name, and no message looks different."""
    applier = worker(world, publisher)
    applier.work_mem = 1
    again = told("id", "v", numbers=[1, 3], dropped=[2])
    applier.apply_batch(
        told_batch([again, named("id", "v"), insert(2, 20), insert(3, 30)], after=100)
    )
    assert rows(world) == [
        {"id": 1, "v_dropped_2": 10, "v": None},
        {"id": 2, "v_dropped_2": None, "v": 20},
        {"id": 3, "v_dropped_2": None, "v": 30},
    ]


def test_a_change_in_a_later_transaction_does_not_bring_an_earlier_one_again(
    world: Subscribed, publisher: Ahead
) -> None:
    """Transactions with rows in front of and behind a new column: none of them comes twice."""
    applier = worker(world, publisher)
    x, y = told("id", "v", "x"), told("id", "v", "x", "y")
    applier.apply_batch(
        told_batch(
            [named("id", "v"), insert(2, 20), x, named("id", "v", "x"), insert(3, 30, 300)],
            [insert(4, 40, 400), y, named("id", "v", "x", "y"), insert(5, 50, 500, 5000)],
            after=100,
        )
    )
    assert [(each["id"], each["x"], each["y"]) for each in rows(world)] == [
        (1, None, None),
        (2, None, None),
        (3, 300, None),
        (4, 400, None),
        (5, 500, 5000),
    ]
    assert not world.rel("a").recopy


def test_columns_that_are_as_before_in_a_later_transaction_are_a_change_too(
    world: Subscribed, publisher: Ahead
) -> None:
    """x comes behind a row of a transaction, and goes in the next: neither comes twice."""
    applier = worker(world, publisher)
    x, gone = told("id", "v", "x"), told("id", "v", dropped=[3])
    applier.apply_batch(
        told_batch(
            [named("id", "v"), insert(2, 20), x, named("id", "v", "x"), insert(3, 30, 300)],
            [gone, named("id", "v"), insert(4, 40)],
            after=100,
        )
    )
    assert not world.rel("a").suspended
    assert [tuple(each.values()) for each in rows(world)] == [
        (1, 10, None),
        (2, 20, None),
        (3, 30, 300),
        (4, 40, None),
    ]


def test_an_error_of_a_later_transaction_does_not_bring_a_change_again(
    world: Subscribed, publisher: Ahead
) -> None:
    """x comes behind a row of a transaction; the next transaction has a value that is refused."""
    applier = worker(world, publisher)
    x = told("id", "v", "x")
    wrong = Insert(1, row("4", "no number", "5"))
    with pytest.raises(ReplicationError, match="cannot hold a value"):
        applier.apply_batch(
            told_batch(
                [named("id", "v"), insert(2, 20), x, named("id", "v", "x"), insert(3, 30, 300)],
                [wrong],
                after=100,
            )
        )
    assert not world.rel("a").suspended
    assert [tuple(each.values()) for each in rows(world)] == [
        (1, 10, None),
        (2, 20, None),
        (3, 30, 300),
    ]


def test_a_forged_shape_changes_nothing(
    world: Subscribed, publisher: Ahead, caplog: pytest.LogCaptureFixture
) -> None:
    """Believed, it would move the values of v to a dropped column."""
    lie = told("id", "v", numbers=[1, 3], dropped=[2])
    forged: list[Message] = [replace(lie, content=b"0" * 64 + lie.content[64:])]
    forged += [named("id", "v"), insert(2, 20)]
    applier = worker(world, publisher)
    applier.apply_batch(batch(forged, after=100))
    assert rows(world) == [{"id": 1, "v": 10}, {"id": 2, "v": 20}]
    assert "action=untrusted_message" in caplog.text
