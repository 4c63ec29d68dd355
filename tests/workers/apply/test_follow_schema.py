"""The lake in memory follows the publisher's columns, in order with the rows, over every kill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from config.guc import Settings
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, relation, row
from workers.apply.apply_batch import Applier
from workers.apply.copy_again import CopyAgain
from workers.apply.follow_schema import SchemaFollower
from workers.lake.column_changes import AddColumn
from workers.lake.table import LakeIdent
from workers.process import failpoints
from workers.proto.messages import ColumnStatus, Insert, Message, TupleColumn, Update
from workers.publisher.remote_table import ColumnType
from workers.publisher.table_shape import ShapeColumn, TableShape

A = relation(1, "a", "id", "v")
WIDER = relation(1, "a", "id", "v", "w")
RENAMED = relation(1, "a", "id", "x")
INT4 = ColumnType(23, -1, "pg_catalog", "int4", "b")
IDENT = LakeIdent("public", "a")
NULL = TupleColumn(ColumnStatus.NULL)
PLACES = (
    failpoints.BEFORE_SCHEMA_CHANGE,
    failpoints.SCHEMA_CHANGED,
    failpoints.SCHEMA_STORED,
)


class Publisher:
    """A publisher of table ``a``: the shape that it answers, and how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.shape = shape("id", "v")
        self.bytes = 1000

    def size(self, relid: int) -> int:
        assert relid == 1
        return self.bytes

    def ask(self, relid: int) -> TableShape | None:
        assert relid == 1
        self.asked += 1
        return self.shape


def shape(*names: str, file: int = 5, numbers: Sequence[int] = (), **more: Any) -> TableShape:
    columns = [
        ShapeColumn(n, name, 23, -1, INT4, **more)
        for n, name in zip(numbers or range(1, len(names) + 1), names, strict=True)
    ]
    highest = max(column.attnum for column in columns)
    dropped = set(range(1, highest + 1)) - {column.attnum for column in columns}
    return TableShape(1, tuple(columns), frozenset(dropped), {1: file})


@pytest.fixture
def publisher() -> Publisher:
    return Publisher()


def worker(world: Subscribed, publisher: Publisher, **settings: Any) -> Applier:
    applier = world.worker()
    assert world.writer is not None
    given = Settings(**settings)
    copies = CopyAgain(world.store, publisher.size)
    applier.schema = SchemaFollower(world.store, world.writer, publisher.ask, lambda: given, copies)
    return applier


def remember(world: Subscribed, publisher: Publisher) -> None:
    """The first look, with the first row; publisher and worker go on."""
    worker(world, publisher).apply_batch(batch([A, Insert(1, row("1", "10"))]))
    publisher.asked = 0


def rows(world: Subscribed) -> list[dict[str, Any]]:
    return sorted(world.lake.rows(IDENT), key=lambda each: each["id"])


def test_columns_without_a_change_cost_no_question(world: Subscribed, publisher: Publisher) -> None:
    remember(world, publisher)
    applier = worker(world, publisher)
    for n in range(3):
        applier.apply_batch(batch([A, Insert(1, row(str(n + 2), "0"))], after=100 * (n + 1)))
    assert publisher.asked == 0
    assert len(rows(world)) == 4


def test_a_first_look_is_stored_in_the_catalog_and_in_the_lake(
    world: Subscribed, publisher: Publisher
) -> None:
    remember(world, publisher)
    stored = world.store.columns(world.sub.oid, world.rel("a").srrelid)
    assert stored
    assert world.lake.tables[IDENT].publisher_columns == stored


def test_an_added_column_in_the_middle_of_a_batch(world: Subscribed, publisher: Publisher) -> None:
    remember(world, publisher)
    publisher.shape = shape("id", "v", "w")
    old: list[Message] = [A, Insert(1, row("2", "20"))]
    new: list[Message] = [WIDER, Insert(1, row("3", "30", "300"))]
    worker(world, publisher).apply_batch(batch(old, new, after=100))
    assert rows(world) == [
        {"id": 1, "v": 10, "w": None},
        {"id": 2, "v": 20, "w": None},
        {"id": 3, "v": 30, "w": 300},
    ]
    (change,) = world.store.schema_changes()
    assert (change.lsn, change.changes) == (LSN(300), ('column "w" added',))
    stats = world.store.subscription_stats(world.sub.oid)
    assert (stats.schema_change_count, stats.column_add_count, stats.column_rename_count) == (
        1,
        1,
        0,
    )
    assert publisher.asked == 1


def test_rows_from_before_a_renaming_are_published_before_it(
    world: Subscribed, publisher: Publisher
) -> None:
    remember(world, publisher)
    publisher.shape = shape("id", "x")
    old: list[Message] = [A, Insert(1, row("2", "20"))]
    new: list[Message] = [RENAMED, Update(1, None, None, row("1", "11"))]
    worker(world, publisher).apply_batch(batch(old, new, after=100))
    assert rows(world) == [{"id": 1, "x": 11}, {"id": 2, "x": 20}]


@pytest.mark.parametrize("drops", [False, True])
def test_a_dropped_column(world: Subscribed, publisher: Publisher, drops: bool) -> None:
    remember(world, publisher)
    settings: dict[str, Any] = {"on_dropped_column": "drop"} if drops else {}
    less = relation(1, "a", "id")
    publisher.shape = TableShape(1, shape("id").columns, frozenset({2}), {1: 5})
    applier = worker(world, publisher, **settings)
    applier.apply_batch(batch([less, Insert(1, row("2"))], after=100))
    kept = [{"id": 1, "v": 10}, {"id": 2, "v": None}]
    assert rows(world) == ([{"id": 1}, {"id": 2}] if drops else kept)


def test_a_dropped_column_of_the_partitions_stops_until_it_is_kept(
    world: Subscribed, publisher: Publisher
) -> None:
    """Nothing is half done: no column, no row, no memory of a change."""
    remember(world, publisher)
    table = world.lake.tables[IDENT]
    id, v = table.columns
    table.columns = (id, replace(v, partition_fields=("v_bucket",)))
    text = table.publisher_columns
    publisher.shape = TableShape(1, shape("id").columns, frozenset({2}), {1: 5})
    received = batch([relation(1, "a", "id"), Insert(1, row("2"))], after=100)
    for _ in range(2):
        with pytest.raises(ReplicationError) as caught:
            worker(world, publisher, on_dropped_column="drop").apply_batch(received)
        assert caught.value.code == "55000"
        assert "are made from it" in (caught.value.detail or "")
        assert "on_dropped_column: keep" in (caught.value.hint or "")
        assert "pgsub refresh mysub --recopy public.a" in (caught.value.hint or "")
        assert rows(world) == [{"id": 1, "v": 10}]
        assert (table.publisher_columns, world.store.schema_changes()) == (text, [])
    world.declare("a", on_dropped_column="keep")
    worker(world, publisher, on_dropped_column="drop").apply_batch(received)
    assert rows(world) == [{"id": 1, "v": 10}, {"id": 2, "v": None}]


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("ahead", [False, True])
def test_a_worker_that_dies_at_any_step_is_followed_by_one_that_goes_on(
    world: Subscribed,
    publisher: Publisher,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    ahead: bool,
) -> None:
    """``ahead``: the publisher has one more column when the successor asks."""
    remember(world, publisher)
    publisher.shape = shape("id", "x", "w")
    changed = relation(1, "a", "id", "x", "w")
    received = batch(
        [A, Insert(1, row("2", "20"))], [changed, Insert(1, row("3", "30", "300"))], after=100
    )
    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "reach", lambda at: die() if at == name else None)
        with pytest.raises(KeyboardInterrupt):
            worker(world, publisher).apply_batch(received)
    if ahead:
        publisher.shape = shape("id", "x", "w", "later")
    worker(world, publisher).apply_batch(received)
    assert rows(world) == [
        {"id": 1, "x": 10, "w": None},
        {"id": 2, "x": 20, "w": None},
        {"id": 3, "x": 30, "w": 300},
    ]


def die() -> None:
    raise KeyboardInterrupt


def test_a_lost_catalog_leaves_the_columns_in_the_lake(
    world: Subscribed, publisher: Publisher
) -> None:
    remember(world, publisher)
    subid, relid = world.sub.oid, world.rel("a").srrelid
    world.store.put_columns(subid, relid, world.rel("a").epoch or "", "{}")
    publisher.shape = shape("id", "x")
    new = batch([RENAMED, Insert(1, row("2", "20"))], after=100)
    worker(world, publisher).apply_batch(new)
    assert rows(world) == [{"id": 1, "x": 10}, {"id": 2, "x": 20}]


def test_what_cannot_be_followed_stops_behind_the_rows_before_it(
    world: Subscribed, publisher: Publisher
) -> None:
    remember(world, publisher)
    publisher.shape = shape("id", "v", "w", file=6)
    old: list[Message] = [A, Insert(1, row("2", "20"))]
    new: list[Message] = [WIDER, Insert(1, row("3", "30", "300"))]
    with pytest.raises(ReplicationError) as caught:
        worker(world, publisher).apply_batch(batch(old, new, after=100))
    error = caught.value
    assert error.code == "55000"
    assert error.primary == 'changed columns of table "public.a" cannot be followed'
    assert error.detail is not None
    assert "rewritten" in error.detail
    assert error.hint is not None
    assert "pgsub refresh mysub --recopy public.a" in error.hint
    assert [each["id"] for each in rows(world)] == [1, 2]
    assert not world.store.schema_changes()


@pytest.mark.parametrize("mode", ["stop", "suspend"])
def test_a_table_that_does_not_follow(world: Subscribed, publisher: Publisher, mode: str) -> None:
    remember(world, publisher)
    world.declare("a", on_schema_change=mode)
    publisher.shape = shape("id", "v", "w")
    new = batch([WIDER, Insert(1, row("3", "30", "300"))], after=100)
    applier = worker(world, publisher)
    if mode == "suspend":
        applier.apply_batch(new)
        assert world.rel("a").suspended
    else:
        with pytest.raises(ReplicationError, match="missing replicated column"):
            applier.apply_batch(new)
        assert not world.rel("a").suspended
    assert publisher.asked == 0
    assert rows(world) == [{"id": 1, "v": 10}]


def test_a_change_in_the_middle_of_a_transaction(world: Subscribed, publisher: Publisher) -> None:
    """An added column may be there early; another change may not."""
    remember(world, publisher)
    publisher.shape = shape("id", "v", "w")
    early: list[Message] = [A, Insert(1, row("2", "20"))]
    worker(world, publisher).apply_batch(
        batch([*early, WIDER, Insert(1, row("3", "30", "300"))], after=100)
    )
    assert [each["w"] for each in rows(world)] == [None, None, 300]
    publisher.shape = shape("id", "x", "w")
    renamed = relation(1, "a", "id", "x", "w")
    mixed: list[Message] = [
        WIDER,
        Insert(1, row("4", "40", "400")),
        renamed,
        Insert(1, row("5", "50", "500")),
    ]
    with pytest.raises(ReplicationError, match="cannot be followed"):
        worker(world, publisher).apply_batch(batch(mixed, after=200))
    assert [each["id"] for each in rows(world)] == [1, 2, 3]


def test_two_changes_in_one_batch(world: Subscribed, publisher: Publisher) -> None:
    """The publisher is ahead at the first one: it has the second column already."""
    remember(world, publisher)
    publisher.shape = shape("id", "v", "w", "z")
    widest = relation(1, "a", "id", "v", "w", "z")
    received = batch(
        [WIDER, Insert(1, row("2", "20", "200"))],
        [widest, Insert(1, row("3", "30", "300", "3000"))],
        after=100,
    )
    worker(world, publisher).apply_batch(received)
    assert [(each["w"], each["z"]) for each in rows(world)] == [
        (None, None),
        (200, None),
        (300, 3000),
    ]
    assert [each.lsn for each in world.store.schema_changes()] == [LSN(200), LSN(300)]


@pytest.mark.parametrize("names", [("id", "_pos"), ("id", "v", "_file")])
def test_a_name_that_iceberg_cannot_have(
    world: Subscribed, publisher: Publisher, names: tuple[str, ...]
) -> None:
    remember(world, publisher)
    publisher.shape = shape(*names)
    new = batch(
        [relation(1, "a", *names), Insert(1, row("2", *["20"] * len(names[1:])))], after=100
    )
    with pytest.raises(ReplicationError) as caught:
        worker(world, publisher).apply_batch(new)
    assert caught.value.code == "42939"
    assert rows(world) == [{"id": 1, "v": 10}]


@pytest.mark.parametrize("mode", ["fill", "null"])
def test_a_column_that_is_added_with_a_default(
    world: Subscribed, publisher: Publisher, mode: str
) -> None:
    remember(world, publisher)
    publisher.shape = with_default()
    old: list[Message] = [A, Insert(1, row("2", "20"))]
    new: list[Message] = [
        WIDER,
        Insert(1, row("3", "30", "300")),
        Insert(1, (*row("4", "40"), NULL)),
    ]
    worker(world, publisher, on_added_default=mode).apply_batch(batch(old, new, after=100))
    before = 7 if mode == "fill" else None
    assert [each["w"] for each in rows(world)] == [before, before, 300, None]
    assert [column.name for column in world.lake.tables[IDENT].columns] == ["id", "v", "w"]
    (change,) = world.store.schema_changes()
    assert change.lsn == LSN(300)
    assert ("stored default" in change.changes[0]) is (mode == "fill")
    assert not world.store.in_flight(world.sub.oid)


def with_default() -> TableShape:
    """Column w was added with 7 as the default."""
    return shape("id", "v", "w", has_missing=True, stored="7", stored_in=frozenset({1}))


@pytest.mark.parametrize("has_missing", [True, False])
def test_a_column_that_the_lake_has_already_may_have_other_values(
    world: Subscribed,
    publisher: Publisher,
    caplog: pytest.LogCaptureFixture,
    has_missing: bool,
) -> None:
    """The publisher's column comes with a default for the rows that are there."""
    remember(world, publisher)
    follower = worker(world, publisher)
    assert world.writer is not None
    text = world.lake.tables[IDENT].publisher_columns or ""
    world.writer.change_columns(world.rel("a"), [AddColumn("w", pa.int32())], lambda _: text)
    publisher.shape = with_default() if has_missing else shape("id", "v", "w")
    follower.apply_batch(batch([WIDER, Insert(1, row("3", "30", "300"))], after=100))
    assert [each["w"] for each in rows(world)] == [None, 300]
    told = [each for each in caplog.records if "action=own_values" in each.getMessage()]
    assert [each.levelname for each in told] == ["WARNING"] * has_missing
    for each in told:
        assert 'Column "w" was added with a value for the rows' in vars(each)["DETAIL"]
        assert "--recopy" in vars(each)["HINT"]


@pytest.mark.parametrize("mode", ["stop", "suspend"])
def test_rows_by_name_end_what_is_known_by_number(
    world: Subscribed, publisher: Publisher, mode: str
) -> None:
    """Another column under the old name, while the table does not follow; then the table does."""
    remember(world, publisher)
    wide = ShapeColumn(3, "v", 20, -1, ColumnType(20, -1, "pg_catalog", "int8", "b"))
    publisher.shape = replace(publisher.shape, columns=(publisher.shape.columns[0], wide))
    changed = replace(A, columns=(A.columns[0], replace(A.columns[1], typid=20)))
    by_name = worker(world, publisher, on_schema_change=mode)
    for n in (2, 3):
        by_name.apply_batch(batch([changed, Insert(1, row(f"{n}", f"{n}0"))], after=n * 100))
    follower = worker(world, publisher)
    follower.apply_batch(batch([changed, Insert(1, row("4", "40"))], after=400))
    assert [each["v"] for each in rows(world)] == [10, 20, 30, 40]
    assert not world.store.schema_changes()


def test_an_error_while_a_table_does_not_follow_forgets_nothing(
    world: Subscribed, publisher: Publisher
) -> None:
    remember(world, publisher)
    publisher.shape = shape("id", "x")
    new = batch([RENAMED, Insert(1, row("2", "20"))], after=100)
    with pytest.raises(ReplicationError, match="missing replicated column"):
        worker(world, publisher, on_schema_change="stop").apply_batch(new)
    worker(world, publisher).apply_batch(new)
    assert [each["x"] for each in rows(world)] == [10, 20]
