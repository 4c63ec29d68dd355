"""A copy into a table that has rows: which keys stop it, and what overwriting makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError, UniqueViolation
from catalog.pg_subscription import TableOptions
from tests.workers.copying import BRANCH, IDENT, Copying, PublisherTwin, copying
from workers.lake.memory.lake import MemoryTable
from workers.lake.table import MAIN, SHARED, SOURCE_COLUMN, LakeColumn

ASKED = "existing_keys"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Copying]:
    yield from copying(tmp_path)


@pytest.fixture
def asked(world: Copying) -> list[str]:
    """What the lake was asked to do."""
    asked: list[str] = []
    world.dest.failpoint = asked.append
    return asked


def hold(
    world: Copying,
    *rows: Sequence[Any],
    columns: Sequence[str] = ("id",),
    owner: str | None = None,
    **options: Any,
) -> None:
    """An adopted lake table of integers with these rows; ``options`` as in the file."""
    tables = {"public.a": TableOptions(adopt=owner is None, **options)}
    world.sub = world.process.store.update_subscription(world.sub.oid, tables=tables)
    made = tuple(LakeColumn(name, pa.int32()) for name in columns)
    table = world.dest.lake.tables.setdefault(IDENT, MemoryTable(made, owner))
    held = (dict(zip(columns, row, strict=True)) for row in rows)
    world.dest.lake.commit(table, MAIN, held)


def sent(world: Copying, blocks: int, *rows: bytes) -> PublisherTwin:
    """A publisher that sends these rows, in one range or over three."""
    ranges = iter([list(rows[:1]), list(rows[1:]), []])
    world.dest.copy_source = lambda _statement: next(ranges)
    return PublisherTwin(list(rows) if blocks == 1 else [], blocks=blocks)


one_or_more = pytest.mark.parametrize("blocks", [1, 20], ids=["one range", "ranges"])


@one_or_more
@pytest.mark.parametrize("declared", [None, "error"])
def test_s_004_2_a_key_that_is_there_stops_the_copy_until_it_is_gone(
    world: Copying, blocks: int, declared: str | None
) -> None:
    hold(world, (41,), (42,), on_key_conflict=declared)
    with pytest.raises(UniqueViolation) as caught:
        world.copy(sent(world, blocks, b"1\n", b"41\n", b"42\n"))
    error = caught.value
    assert error.code == "23505"
    assert error.primary.startswith("duplicate key value violates the unique key of lake table")
    assert error.detail == "Key (id) already exists: 2 copied rows have one that is in the table."
    assert "pgsub refresh mysub --recopy public.a" in (error.hint or "")
    assert not any("4" in text for text in (error.primary, error.detail, error.hint or ""))
    assert world.dest.staged == 0
    assert [row["id"] for row in world.dest.lake.rows(IDENT)] == [41, 42]
    hold(world, on_key_conflict=declared)
    rel, keys = world.copy(sent(world, blocks, b"1\n", b"41\n", b"42\n"))
    assert (keys, rel.copied) == ([1, 41, 42], False)


@one_or_more
def test_the_copied_row_wins_where_that_is_declared(world: Copying, blocks: int) -> None:
    columns = ("id", "note")
    hold(world, (1, 100), (2, 200), columns=columns, on_key_conflict="overwrite")
    rel, keys = world.copy(sent(world, blocks, b"2\n", b"3\n"))
    assert (sorted(keys), rel.copied) == ([1, 2, 3], False)
    found = [tuple(row.values()) for row in world.dest.lake.rows(IDENT, BRANCH)]
    assert found == [(1, 100), (2, 200), (3, None)]
    assert len(world.dest.lake.rows(IDENT)) == 2, "readers see nothing of it yet"


def test_two_rows_of_one_key_are_not_overwritten(world: Copying) -> None:
    hold(world, (1,), (2,), (2,), on_key_conflict="overwrite")
    with pytest.raises(UniqueViolation, match=r"key \(id\) is not unique") as caught:
        world.copy(sent(world, 1, b"1\n", b"2\n"))
    assert caught.value.detail == "2 copied rows have the keys of 3 rows."
    world.copy(sent(world, 1, b"1\n", b"3\n"))


def test_a_key_of_several_columns_is_taken_by_all_of_them(world: Copying) -> None:
    columns, key = ("id", "b", "c"), ("id", "c")
    hold(world, (1, 0, 1), (2, 0, 2), columns=columns)
    free = replace(sent(world, 1, b"1,0,2\n", b"2,0,1\n"), columns=columns, key=key)
    world.copy(free)
    taken = replace(sent(world, 1, b"1,0,2\n", b"2,9,2\n"), columns=columns, key=key)
    with pytest.raises(UniqueViolation) as caught:
        world.copy(taken)
    assert caught.value.detail == "Key (id, c) already exists: One copied row has one that " + (
        "is in the table."
    )


@pytest.mark.parametrize("declared", [None, "overwrite"])
@pytest.mark.parametrize(
    ("key", "listed"), [((), None), (("id", "c"), "1 2"), (("id", "generated"), None)]
)
def test_without_a_whole_key_rows_are_added_as_natively(
    world: Copying, asked: list[str], key: Sequence[str], listed: str | None, declared: str | None
) -> None:
    """Without an index there is none natively; part of one is no key. A generated column of it is
    not among the columns before version 18::

        publisher   PRIMARY KEY (id, generated), rows (1, 1, 1) of which the lake has one
        copied      id was taken for the key: with ``overwrite`` the copied row took its place
    """
    columns = ("id", "b", "c")
    hold(world, (1, 1, 1), columns=columns, on_key_conflict=declared)
    data = b"1,1\n" if listed else b"1,1,1\n"
    conn = replace(sent(world, 1, data), columns=columns, key=key, listed=listed)
    assert world.copy(conn)[1] == [1, 1]
    assert ASKED not in asked


@one_or_more
def test_a_copy_without_rows_meets_none(world: Copying, asked: list[str], blocks: int) -> None:
    hold(world, (1,))
    assert world.copy(sent(world, blocks))[1] == [1]
    assert ASKED not in asked


def test_an_empty_table_is_not_asked(world: Copying, asked: list[str]) -> None:
    world.copy(sent(world, 1, b"1\n"))
    world.rel = world.process.store.update_rel(world.rel.srsubid, world.rel.srrelid, epoch="next")
    assert world.copy(sent(world, 1, b"1\n"))[0].copied
    hold(world, owner="u")
    world.copy(sent(world, 1, b"1\n"))
    assert ASKED not in asked


def test_a_copy_in_the_place_of_another_meets_nothing(world: Copying, asked: list[str]) -> None:
    hold(world, (1,), on_key_conflict="error")
    world.rel = world.process.store.update_rel(world.rel.srsubid, world.rel.srrelid, recopy=True)
    assert world.copy(sent(world, 1, b"1\n"))[1] == [1]
    assert ASKED not in asked


def test_in_a_shared_table_a_key_is_there_once_for_each(world: Copying, asked: list[str]) -> None:
    columns = ("id", SOURCE_COLUMN)
    hold(world, (1, 0), columns=columns, owner=SHARED, shared=True, on_key_conflict="error")
    assert world.copy(sent(world, 1, b"1\n"))[1] == [1, 1]
    assert ASKED not in asked


def test_rows_that_were_put_into_our_table_between_two_attempts_are_met(world: Copying) -> None:
    """It was made empty by us, and its keys are not the publisher's any more."""
    world.copy(sent(world, 1, b"1\n"))
    table = world.dest.lake.tables[IDENT]
    world.dest.lake.commit(table, MAIN, [{"id": 7}])
    assert not world.copy(sent(world, 1, b"1\n"))[0].copied
    with pytest.raises(UniqueViolation):
        world.copy(sent(world, 1, b"7\n"))


@one_or_more
@pytest.mark.parametrize("held", [[], [(9, 9, 0)]], ids=["empty", "with a row"])
def test_a_declared_key_that_copied_rows_share_stops_the_copy(
    world: Copying, blocks: int, held: list[tuple[int, ...]]
) -> None:
    """The publisher need not know of it."""
    columns, keys = ("id", "b", "c"), (("b",), ("b", "c"), ("c",))
    hold(world, *held, columns=columns, keys=keys)
    rows = (b"1,5,1\n", b"2,5,1\n", b"3,,2\n", b"4,,3\n")
    with pytest.raises(UniqueViolation) as caught:
        world.copy(replace(sent(world, blocks, *rows), columns=columns))
    assert caught.value.primary == (
        'duplicate key value violates a declared key of lake table "public.a"'
    )
    assert (caught.value.detail or "").splitlines() == [
        f"Key ({key}) is there more than once: one value is." for key in ("b", "b, c", "c")
    ]
    free = (b"1,5,1\n", b"2,6,4\n", b"3,,2\n", b"4,,3\n")
    world.copy(replace(sent(world, blocks, *free), columns=columns))


def test_in_a_shared_table_a_declared_key_is_each_source_s_own(world: Copying) -> None:
    columns = ("id", "b", SOURCE_COLUMN)
    hold(world, (1, 5, 0), columns=columns, owner=SHARED, shared=True, keys=(("b",),))
    conn = replace(sent(world, 1, b"1,5\n"), columns=columns[:2])
    assert world.copy(conn)[1] == [1, 1]
    conn = replace(sent(world, 1, b"1,5\n", b"2,5\n"), columns=columns[:2])
    with pytest.raises(UniqueViolation):
        world.copy(conn)


def test_a_declared_key_of_a_column_that_is_not_published(world: Copying) -> None:
    hold(world, keys=(("b",),))
    with pytest.raises(ReplicationError) as caught:
        world.copy(sent(world, 1, b"1\n"))
    assert caught.value.code == "42703"
