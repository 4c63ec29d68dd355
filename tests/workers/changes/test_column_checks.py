"""Columns that the target generates: through copy and apply on a lake in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import TableOptions
from tests.workers.copying import BRANCH, IDENT, Copying, PublisherTwin, copying
from tests.workers.subscribed import COLUMNS, EPOCH, Subscribed
from tests.workers.transactions import batch, relation, row
from workers.changes.column_checks import check_columns
from workers.lake.memory.destination import MemoryDestination
from workers.lake.memory.lake import MemoryTable
from workers.lake.sources import with_source_column
from workers.lake.table import MAIN, SHARED, SOURCE_COLUMN, LakeColumn, LakeTable, Stamp
from workers.proto.messages import Delete, Insert, Message, Truncate, Update

A = relation(1, "a", "id", "v")
FULL = relation(1, "a", "id", "v", identity="f")
SUM = (("sum", "id + v"),)
INCOMPATIBLE = 'logical replication target relation "public.a" has incompatible generated column'


@pytest.fixture
def copied(tmp_path: Path) -> Iterator[Copying]:
    yield from copying(tmp_path)


@pytest.fixture
def summing(world: Subscribed) -> Subscribed:
    """Table a has a column more, which the lake generates."""
    rel, dest = world.rel("a"), MemoryDestination(world.lake)
    stamp = Stamp(origin_name(rel.srsubid), LSN(50), EPOCH, LSN(50))
    dest.drop_table(IDENT)
    columns = (*COLUMNS, LakeColumn("sum", pa.int64()))
    dest.create_table(IDENT, columns, owner="u", relid=rel.srrelid, stamp=stamp)
    world.declare("a", generated=SUM)
    return world


def insert(key: int, value: int) -> Message:
    return Insert(1, row(str(key), str(value)))


def update(key: int, value: int, old: int | None = None) -> Message:
    """With the old key where that has changed."""
    new = row(str(key), str(value))
    return Update(1, None, None, new) if old is None else Update(1, "K", row(str(old), "0"), new)


def test_inserted_and_updated_rows_have_them_computed(summing: Subscribed) -> None:
    worker = summing.worker()
    worker.apply_batch(batch([A, insert(1, 10), insert(2, 20), insert(3, 30)]))
    assert summing.rows("a") == [(1, 10, 11), (2, 20, 22), (3, 30, 33)]
    changed = [A, update(1, 11), update(5, 20, old=2), Delete(1, "K", row("3", "0")), insert(7, 7)]
    worker.apply_batch(batch(changed, after=100))
    assert summing.rows("a") == [(1, 11, 12), (5, 20, 25), (7, 7, 14)]
    worker.apply_batch(batch([A, Truncate(False, False, (1,)), insert(8, 8)], after=200))
    assert summing.rows("a") == [(8, 8, 16)]


@pytest.mark.parametrize("options", [{}, {"on_key_conflict": "overwrite"}, {"keys": (("v",),)}])
def test_so_have_rows_whose_keys_are_looked_for(summing: Subscribed, options: dict) -> None:  # type: ignore[type-arg]  # options of any kind
    summing.declare("a", generated=SUM, **options)
    summing.distrust("a")
    worker = summing.worker()
    worker.apply_batch(batch([A, insert(1, 10), insert(2, 20)]))
    worker.apply_batch(batch([A, update(3, 10, old=1), insert(4, 40)], after=100))
    assert summing.rows("a") == [(2, 20, 22), (3, 10, 13), (4, 40, 44)]
    if "on_key_conflict" in options:
        worker.apply_batch(batch([A, insert(2, 50), update(3, 60)], after=200))
        assert summing.rows("a") == [(2, 50, 52), (3, 60, 63), (4, 40, 44)]


def test_so_have_whole_rows(summing: Subscribed) -> None:
    worker = summing.worker()
    worker.apply_batch(batch([FULL, insert(1, 10), insert(1, 10)]))
    changed = Update(1, "O", row("1", "10"), row("1", "11"))
    worker.apply_batch(batch([FULL, changed], after=100))
    assert summing.rows("a") == [(1, 10, 11), (1, 11, 12)]


def test_s_011_10_published_columns_that_are_generated_stop_apply(summing: Subscribed) -> None:
    published = relation(1, "a", "id", "v", "sum")
    worker = summing.worker()
    with pytest.raises(ReplicationError) as refused:
        worker.apply_batch(batch([published, Insert(1, row("1", "2", "3"))]))
    assert refused.value.code == "55000"
    assert refused.value.primary == f'{INCOMPATIBLE}: "sum"'
    assert "finished at" in refused.value.report()
    assert summing.rows("a") == []


def test_all_of_them_are_named_after_those_that_are_missing() -> None:
    """As in PostgreSQL, one kind at a time."""
    columns = tuple(LakeColumn(name, pa.int32()) for name in ("c1", "c2", "c3"))
    table = LakeTable(IDENT, columns, "u", 1, None)
    generated = (("c3", "c1 + 2"), ("c2", "c1 + 2"))
    check_columns(["c1"], table, generated)
    for published, said in (
        (["c1", "c2", "c3"], f'{INCOMPATIBLE}s: "c2", "c3"'),
        (["c3"], f'{INCOMPATIBLE}: "c3"'),
        (["c2", "c9"], 'is missing replicated column: "c9"'),
    ):
        with pytest.raises(ReplicationError) as refused:
            check_columns(published, table, generated)
        assert refused.value.primary.endswith(said)
    lacking = replace(table, columns=columns[:1])
    with pytest.raises(ReplicationError) as refused:
        check_columns(["c1"], lacking, generated)
    assert refused.value.code == "55000"
    assert 'is missing generated columns: "c3", "c2"' in refused.value.primary


@pytest.mark.parametrize(
    ("published", "types", "old"),
    [
        (["id", "team"], {"team": pa.string()}, "dept"),
        (["id", "team"], {"team": pa.int32()}, "size"),
        (["id", "team"], {"team": pa.float64()}, None),  # of that type none went
        (["id", "team"], {}, None),  # either of the two
        (["id", "size", "team"], {}, "dept"),
        (["id", "team", "more"], {"team": pa.string(), "more": pa.string()}, None),
        (["id", "dept", "size", "team"], {"team": pa.string()}, None),  # nothing went
    ],
)
def test_the_hint_for_a_renamed_column_is_the_renaming(
    published: list[str], types: dict[str, pa.DataType], old: str | None
) -> None:
    """ADD COLUMN, the other remedy, would leave the values under the old name."""
    texts = tuple(LakeColumn(name, pa.string()) for name in ("dept", "made", SOURCE_COLUMN))
    numbers = tuple(LakeColumn(name, pa.int32()) for name in ("id", "size"))
    table = LakeTable(IDENT, (*texts, *numbers), "u", 1, None)
    with pytest.raises(ReplicationError, match="is missing replicated column") as refused:
        check_columns(published, table, (("made", "dept"),), types)
    hint = refused.value.hint or ""
    command = f"ALTER TABLE `lake`.`public`.`a` RENAME COLUMN `{old}` TO `team`"
    assert (f"pgsub sql '{command}'" in hint) is (old is not None)
    assert ("RENAME" in hint) is (old is not None)
    assert "ADD COLUMN" in hint


def test_the_publisher_s_types_tell_which_column_was_renamed(world: Subscribed) -> None:
    renamed = relation(1, "a", "id", "w")
    with pytest.raises(ReplicationError) as refused:
        world.worker().apply_batch(batch([renamed, Insert(1, row("1", "2"))]))
    assert "RENAME COLUMN `v` TO `w`" in (refused.value.hint or "")
    other = replace(renamed, columns=(renamed.columns[0], replace(renamed.columns[1], typid=25)))
    with pytest.raises(ReplicationError) as refused:
        world.worker().apply_batch(batch([other, Insert(1, row("1", "2"))]))
    assert "RENAME" not in (refused.value.hint or "")


@pytest.mark.parametrize("blocks", [1, 20], ids=["one range", "ranges"])
def test_a_table_that_is_made_and_copied_has_them(copied: Copying, blocks: int) -> None:
    declare(copied, generated=(("twice", "id * 2"),))
    ranges = iter([[b"1\n"], [b"2\n"], []])
    copied.dest.copy_source = lambda _statement: next(ranges)
    data = [b"1\n", b"2\n"] if blocks == 1 else []
    copied.copy(PublisherTwin(data, blocks=blocks))
    rows = copied.dest.lake.rows(IDENT, BRANCH)
    assert rows == [{"id": 1, "twice": 2}, {"id": 2, "twice": 4}]


@pytest.mark.parametrize("blocks", [1, 20], ids=["one range", "ranges"])
def test_in_a_shared_table_too(copied: Copying, blocks: int) -> None:
    """Also over the column that says whose row it is."""
    declare(copied, shared=True, generated=(("twice", "id * 2"), ("whose", "upper(_pgsub_source)")))
    ranges = iter([[b"1\n"], [], [b"2\n"]])
    copied.dest.copy_source = lambda _statement: next(ranges)
    data = [b"1\n", b"2\n"] if blocks == 1 else []
    copied.copy(PublisherTwin(data, blocks=blocks))
    mine = {"whose": "U:PUBLIC.A", SOURCE_COLUMN: "u:public.a"}
    rows = copied.dest.lake.rows(IDENT, BRANCH)
    assert rows == [{"id": 1, "twice": 2, **mine}, {"id": 2, "twice": 4, **mine}]
    assert list(rows[0]) == ["id", "twice", "whose", SOURCE_COLUMN]


def test_a_copy_computes_only_its_source_s_rows(copied: Copying) -> None:
    """They take the place of those that the source had; another one's stay what they are."""
    declare(copied, shared=True, generated=(("twice", "id * 2"),))
    columns = [LakeColumn(name, pa.int32()) for name in ("id", "twice")]
    table = MemoryTable(with_source_column(columns), SHARED)
    copied.dest.lake.tables[IDENT] = table
    of = {source: {SOURCE_COLUMN: f"{source}:public.a"} for source in ("u", "other")}
    held = {"id": 1, "twice": 0, **of["other"]}
    copied.dest.lake.commit(table, MAIN, [held, {"id": 1, "twice": 0, **of["u"]}])
    copied.copy(PublisherTwin([b"1\n", b"2\n"]))
    rows = copied.dest.lake.rows(IDENT, BRANCH)
    assert rows == [held, {"id": 1, "twice": 2, **of["u"]}, {"id": 2, "twice": 4, **of["u"]}]


@pytest.mark.parametrize("made", [False, True], ids=["no lake table yet", "a lake table"])
def test_s_011_10_they_stop_the_copy_too(copied: Copying, made: bool) -> None:
    """Nothing is made in the lake."""
    declare(copied, adopt=True, generated=(("b", "id * 2"), ("c", "id * 3")))
    if made:
        columns = tuple(LakeColumn(name, pa.int32()) for name in ("id", "b", "c"))
        table = copied.dest.lake.tables.setdefault(IDENT, MemoryTable(columns))
        copied.dest.lake.commit(table, MAIN, [])
    with pytest.raises(ReplicationError) as refused:
        copied.copy(PublisherTwin([b"1,2,3\n"], columns=("id", "b", "c")))
    assert refused.value.code == "55000"
    assert refused.value.primary == f'{INCOMPATIBLE}s: "b", "c"'
    assert (IDENT in copied.dest.lake.tables) == made


def test_a_copied_row_that_takes_the_place_of_another(copied: Copying) -> None:
    declare(copied, adopt=True, on_key_conflict="overwrite", generated=(("g", "id * 2 + v"),))
    columns = tuple(LakeColumn(name, pa.int32()) for name in ("id", "v", "g"))
    table = copied.dest.lake.tables.setdefault(IDENT, MemoryTable(columns))
    held = [{"id": 1, "v": 1, "g": 0}, {"id": 2, "v": 2, "g": 0}]
    copied.dest.lake.commit(table, MAIN, held)
    copied.copy(PublisherTwin([b"2,20\n", b"3,30\n"], columns=("id", "v")))
    rows = [tuple(row.values()) for row in copied.dest.lake.rows(IDENT, BRANCH)]
    assert sorted(rows) == [(1, 1, 0), (2, 20, 24), (3, 30, 36)]


def declare(copied: Copying, **options: object) -> None:
    tables = {"public.a": TableOptions(**options)}  # type: ignore[arg-type]  # as the file has them
    copied.sub = copied.process.store.update_subscription(copied.sub.oid, tables=tables)
