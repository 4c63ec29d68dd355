"""Columns that come, go, are renamed or computed anew, as the watch sees them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.changed_text import StoredTextTypes
from config.monitor_limits import (
    ALL_TABLES_SECONDS,
    TEXT_COMPARISON_SECONDS,
)
from tests.workers.transactions import relation
from tests.workers.watched_text import PLAIN, STAGE, Watched, stages, warnings
from workers.changes.relation_map import LogicalRepRelMap
from workers.publisher.changing_text import TextTypes, files_of, versions_of
from workers.publisher.remote_table import ColumnType
from workers.publisher.table_shape import ShapeColumn, TableShape

INT4 = ColumnType(23, -1, "pg_catalog", "int4", "b")
INT8 = ColumnType(20, -1, "pg_catalog", "int8", "b")


def test_a_column_that_comes_later_is_watched(watched: Watched) -> None:
    """Each announcement brings one question: only the publisher knows the types."""
    watched.watch._all_due = float("inf")
    watched.types[1] = PLAIN
    watched.turn()
    watched.turn()
    assert watched.publisher.asked == [{1, 2}]
    for announced, asked in ((("id",), 2), (("id", "v"), 3), (("id", "v"), 4)):
        watched.relmap.update(relation(1, "a", *announced))
        watched.turn()
        watched.turn()
        assert watched.publisher.asked[1:] == [{1}] * (asked - 1)
    watched.relmap.update(relation(1, "a", "id", "v"))
    watched.types[1] = stages("new")
    watched.turn()
    watched.types[1] = stages("open")
    watched.turn()
    assert len(watched.changes()) == 1


@pytest.mark.parametrize("announced", [True, False])
def test_a_column_that_was_dropped_and_added_again_is_another_one(
    watched: Watched, announced: bool
) -> None:
    """The table is announced by the same message, with its next change: a minute is enough."""
    watched.types[1] = TextTypes(numbers={"id": 1, "v": 2})
    watched.relmap.update(relation(1, "a", "id", "v"))
    watched.turn()
    watched.types[1] = TextTypes(numbers={"id": 1, "v": 3})
    watched.turn()
    assert watched.changes() == []  # nobody asks in between for a table that does not change
    if announced:
        watched.relmap.update(relation(1, "a", "id", "v"))
    watched.turn(TEXT_COMPARISON_SECONDS if announced else ALL_TABLES_SECONDS)
    assert watched.changes() == [('column "v" was dropped and added again',)]


def test_a_column_that_triggers_tell_of_is_not_told_here(watched: Watched) -> None:
    """The worker learns at the position that the column is another one."""
    watched.turn()
    watched.watch.told = True
    watched.types[2] = TextTypes(numbers={"id": 1, "v": 3})
    watched.turn(ALL_TABLES_SECONDS)
    assert watched.changes() == []
    watched.types[1] = stages("open")
    watched.turn()
    assert watched.changes() == [('column "v": label "new" of type stage is "open"',)]


@pytest.mark.parametrize("announced", [True, False])
def test_a_column_that_is_not_published_is_none_of_ours(watched: Watched, announced: bool) -> None:
    both = {"v": (STAGE,), "secret": (STAGE,)}
    watched.types[1] = replace(stages("new"), columns=both)
    watched.relmap.update(relation(1, "a", "id", "v"))
    watched.turn()
    watched.start()
    if not announced:
        watched.relmap = LogicalRepRelMap()
    watched.types[1] = replace(stages("open"), columns=both)
    watched.turn()
    assert watched.changes() == [('column "v": label "new" of type stage is "open"',)]


def computed(name: str, version: int, file: int) -> TextTypes:
    """A table whose second column was written in a version of the catalog, the rows in a file."""
    versions = {"id": "23/-1/700", name: f"23/-1/{version}"}
    return TextTypes(numbers={"id": 1, name: 2}, versions=versions, files=f"1:{file}")


@pytest.mark.parametrize("remembered", [True, False])
@pytest.mark.parametrize("told", [True, False])
def test_values_computed_anew_behind_a_renaming_are_found(
    watched: Watched, told: bool, remembered: bool
) -> None:
    """The worker compares while the last announcement has the old name, or there is none."""
    if told:
        watched.relmap.update(relation(1, "a", "id", "old"))
    if remembered:
        watched.follow("a", id=1, old=2)
    watched.types[1] = computed("old", 700, 16402)
    watched.turn()
    watched.types[1] = computed("new", 701, 16402)
    watched.turn(ALL_TABLES_SECONDS)
    assert watched.changes() == []
    watched.types[1] = computed("new", 702, 16403)
    watched.relmap.update(relation(1, "a", "id", "new"))
    watched.turn()
    assert watched.changes() == [('values of column "new" were computed anew',)]


def shape(name: str, version: int, type_of_n: int, file: int) -> TableShape:
    """Table b with three columns, as the follower of columns is told."""
    of_n = "701" if type_of_n == INT8.oid else "700"
    columns = (
        ShapeColumn(1, "id", INT4.oid, -1, INT4, version="700"),
        ShapeColumn(2, name, INT4.oid, -1, INT4, version=str(version)),
        ShapeColumn(3, "n", type_of_n, -1, INT4, version=of_n),
    )
    return TableShape(2, columns, frozenset(), {2: file})


def types(shape: TableShape) -> TextTypes:
    numbers = {each.name: each.attnum for each in shape.columns}
    return TextTypes(numbers=numbers, versions=versions_of(shape), files=files_of(shape))


def test_a_renaming_and_a_new_file_that_are_seen_apart_are_no_values_computed_anew(
    watched: Watched,
) -> None:
    """Both were followed within the seconds between two comparisons by the clock."""
    watched.types[2] = types(shape("old", 700, INT4.oid, 16402))
    watched.turn()
    for seen in shape("new", 701, INT4.oid, 16402), shape("new", 701, INT8.oid, 16403):
        watched.watch.shapes.append(seen)
        watched.batch()
    watched.types[2] = types(shape("new", 701, INT8.oid, 16403))
    watched.turn(ALL_TABLES_SECONDS)
    assert (watched.changes(), watched.watch.shapes) == ([], [])


@pytest.mark.parametrize("apart", [True, False])
def test_a_shape_hides_no_values_that_were_computed_anew(watched: Watched, apart: bool) -> None:
    watched.types[2] = types(shape("old", 700, INT4.oid, 16402))
    watched.turn()
    if apart:
        watched.watch.shapes.append(shape("new", 701, INT4.oid, 16402))
    watched.watch.shapes.append(shape("new", 702, INT8.oid, 16404))
    watched.types[2] = types(shape("new", 702, INT8.oid, 16404))
    watched.turn(ALL_TABLES_SECONDS)
    assert watched.changes() == [('values of column "new" were computed anew',)]


@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.parametrize("swapped", [True, False])
def test_values_computed_anew_under_another_column_s_name_are_found(
    watched: Watched, shown: bool, swapped: bool
) -> None:
    """Two columns swapped their names, or one was dropped and the other has the name by now."""

    def have(file: int, **columns: tuple[int, str]) -> TableShape:
        listed = [
            ShapeColumn(number, name, INT4.oid, -1, INT4, version=version)
            for name, (number, version) in columns.items()
        ]
        return TableShape(2, tuple(listed), frozenset(), {2: file})

    watched.types[2] = types(have(5, id=(1, "700"), a=(2, "700"), b=(3, "700")))
    watched.turn()
    watched.follow(id=1, a=2, b=3)
    also = {"b": (2, "701")} if swapped else {}
    now = have(6, id=(1, "700"), a=(3, "702"), **also)
    watched.types[2] = types(now)
    if shown:
        watched.watch.shapes.append(now)
    watched.follow(id=1, a=3, **({"b": 2} if swapped else {}))
    watched.batch()
    watched.turn(ALL_TABLES_SECONDS)
    assert 'values of column "a" were computed anew' in watched.changes()[0]


def test_an_announcement_from_before_the_copy_hides_no_column(watched: Watched) -> None:
    rel, copied = watched.world.rel("a"), computed("new", 701, 16402)
    row = StoredTextTypes(rel.srsubid, rel.srrelid, rel.epoch or "", copied.as_json())
    watched.world.store.put_text_types(row)
    watched.relmap.update(relation(1, "a", "id", "old"))
    watched.types[1] = copied
    watched.turn()
    watched.types[1] = computed("new", 702, 16403)
    watched.relmap.update(relation(1, "a", "id", "new"))
    watched.turn()
    assert watched.changes() == [('values of column "new" were computed anew',)]


def test_columns_that_the_lake_has_followed_are_no_others(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    """Two columns have swapped their names; the follower knows them by number."""
    watched.types[2] = TextTypes(numbers={"id": 1, "v": 2, "w": 3})
    watched.turn(ALL_TABLES_SECONDS)
    watched.follow(id=1, v=3, w=2)
    watched.types[2] = TextTypes(numbers={"id": 1, "v": 3, "w": 2})
    watched.turn(ALL_TABLES_SECONDS)
    assert warnings(caplog) == []
    watched.types[2] = TextTypes(numbers={"id": 1, "v": 4, "w": 2})
    watched.turn(ALL_TABLES_SECONDS)
    assert len(warnings(caplog)) == 1
    assert [each.copies for each in watched.found] == [True]


def test_a_column_that_is_added_under_the_name_of_one_whose_drop_was_followed_is_new(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    """No comparison came between the drop and the addition."""
    watched.types[2] = TextTypes(numbers={"id": 1, "v": 2})
    watched.turn(ALL_TABLES_SECONDS)
    watched.follow(id=1)
    watched.types[2] = TextTypes(numbers={"id": 1, "v": 3})
    watched.turn(ALL_TABLES_SECONDS)
    assert warnings(caplog) == []
    assert watched.found == []
