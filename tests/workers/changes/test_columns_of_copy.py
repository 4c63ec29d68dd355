"""The lake columns of a copy: before it, during it, and in the commit that publishes it."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from catalog.errcodes import FeatureNotSupported
from catalog.pg_subscription import TableOptions
from workers.changes.column_comments import CLAMPED
from workers.changes.columns_of_copy import ColumnsOfCopy, PublishedColumn, plan_columns
from workers.changes.remembered_columns import RememberedColumn, RememberedColumns, from_text
from workers.lake.column_changes import (
    AddColumn,
    DescribeColumn,
    DropColumn,
    RenameColumn,
    WidenColumn,
)
from workers.lake.table import LakeColumn

INT, LONG, TEXT = pa.int32(), pa.int64(), pa.string()
TYPES: dict[int, pa.DataType] = {23: INT, 20: LONG, 25: TEXT}
LAKE = (
    LakeColumn("id", INT, field_id=1),
    LakeColumn("v", INT, field_id=2),
    LakeColumn("w", INT, field_id=3),
)
MEMORY = RememberedColumns(
    "epoch",
    1,
    3,
    {1: 5},
    tuple(RememberedColumn(n, name, 23, -1, 23, n) for n, name in ((1, "id"), (2, "v"), (3, "w"))),
)


def column(attnum: int, name: str, typid: int = 23) -> PublishedColumn:
    return PublishedColumn(attnum, name, typid, -1, TYPES[typid])


def plan(
    *published: PublishedColumn,
    relid: int = 1,
    lake: tuple[LakeColumn, ...] = LAKE,
    memory: RememberedColumns | None = MEMORY,
    options: TableOptions | None = None,
    dropped: tuple[int, ...] = (),
    key: tuple[str, ...] = (),
) -> ColumnsOfCopy:
    chosen = options or TableOptions()
    return plan_columns(published, relid, lake, memory, chosen, dropped=dropped, key=key)


def test_columns_as_before_change_nothing() -> None:
    found = plan(column(1, "id"), column(2, "v"), column(3, "w"))
    assert (found.now, found.at_publication(LAKE)) == ((), ())
    assert found.options(TableOptions()) == TableOptions()


def test_another_type_another_name_and_a_wider_one() -> None:
    found = plan(column(1, "id", 20), column(2, "v", 25), column(3, "x"))
    assert set(found.now) == {WidenColumn(1, LONG), AddColumn("v__next", TEXT)}
    assert dict(found.options(TableOptions()).columns) == {"id": "id", "v": "v__next", "x": "w"}
    lake = (*LAKE, LakeColumn("v__next", TEXT, field_id=4))
    assert found.at_publication(lake) == (
        DropColumn(2),
        RenameColumn(3, "x"),
        RenameColumn(4, "v"),
    )


def test_the_next_attempt_has_the_same_second_step() -> None:
    first = plan(column(1, "id"), column(2, "v", 25), column(3, "w"))
    lake = (*LAKE, LakeColumn("v__next", TEXT, field_id=4))
    columns = (
        MEMORY.columns[0],
        RememberedColumn(2, "v", 25, -1, 25, 4),
        MEMORY.columns[2],
    )
    memory = replace(MEMORY, columns=columns, kept=first.kept or {})
    again = plan(column(1, "id"), column(2, "v", 25), column(3, "w"), lake=lake, memory=memory)
    assert again.now == ()
    assert again.at_publication(lake) == first.at_publication(lake)
    back = plan(column(1, "id"), column(2, "v", 20), column(3, "w"), lake=lake, memory=memory)
    assert back.now == (DropColumn(4), AddColumn("v__next", LONG))


def test_a_dropped_and_added_column_is_another_one() -> None:
    found = plan(column(1, "id"), column(2, "v"), column(4, "w"))
    assert found.now == (AddColumn("w__next", INT),)
    assert DropColumn(3) in found.at_publication(LAKE)


@pytest.mark.parametrize("dropped", [(), (3,)])
def test_a_dropped_column_is_kept_or_dropped(dropped: tuple[int, ...]) -> None:
    found = plan(column(1, "id"), column(2, "v"), dropped=dropped)
    assert found.at_publication(LAKE) == tuple(map(DropColumn, dropped))
    assert found.kept == ({-3: 3} if dropped else {3: 3})


def test_two_columns_swap_their_names() -> None:
    found = plan(column(1, "id"), column(2, "w"), column(3, "v"))
    assert found.now == ()
    assert found.at_publication(LAKE) == (RenameColumn(2, "w"), RenameColumn(3, "v"))


def test_the_numbers_of_another_table_say_nothing() -> None:
    found = plan(column(1, "w"), column(2, "id"), column(3, "new"), relid=9)
    assert found.now == (AddColumn("new", INT),)
    assert found.at_publication(LAKE) == ()
    assert found.kept == {-2: 2}


def test_a_column_that_only_the_lake_has_stays() -> None:
    lake = (*LAKE, LakeColumn("note", TEXT, field_id=9))
    found = plan(column(1, "id"), column(2, "v"), column(3, "w"), lake=lake)
    assert found.at_publication(lake) == ()


def test_a_type_that_the_user_chose_stays() -> None:
    lake = (LAKE[0], LakeColumn("v", TEXT, field_id=2), LAKE[2])
    found = plan(column(1, "id"), column(2, "v"), column(3, "w"), lake=lake)
    assert (found.now, found.at_publication(lake)) == ((), ())


def test_without_memory_columns_are_added_and_widened() -> None:
    found = plan(column(1, "id", 20), column(2, "v"), column(4, "new"), memory=None)
    assert found.now == (WidenColumn(1, LONG), AddColumn("new", INT))
    assert found.at_publication(LAKE) == ()


def test_columns_that_the_lake_computes_do_not_survive_another_type() -> None:
    computed = TableOptions(generated=(("twice", "v * 2"),))
    with pytest.raises(FeatureNotSupported, match='lake column "v" cannot be replaced'):
        plan(column(1, "id"), column(2, "v", 25), column(3, "w"), options=computed)


W_LAID_OUT = (*LAKE[:2], replace(LAKE[2], partition_fields=("w_bucket",)))


@pytest.mark.parametrize("column_of_layout", [W_LAID_OUT[2], replace(LAKE[2], sorts=True)])
def test_a_column_of_the_layout_is_neither_dropped_nor_replaced(
    column_of_layout: LakeColumn,
) -> None:
    lake = (*LAKE[:2], column_of_layout)
    assert plan(column(1, "id"), column(2, "v"), lake=lake).at_publication(lake) == ()
    with pytest.raises(FeatureNotSupported, match='"w" can be neither') as caught:
        plan(column(1, "id"), column(2, "v"), lake=lake, dropped=(3,))
    assert "on_dropped_column: keep" in (caught.value.hint or "")
    with pytest.raises(FeatureNotSupported, match='"w" can be neither'):
        plan(column(1, "id"), column(2, "v"), column(3, "w", 25), lake=lake)


def test_a_column_of_the_layout_makes_room_for_a_new_one() -> None:
    found = plan(column(1, "id"), column(2, "v"), column(4, "w"), lake=W_LAID_OUT)
    assert found.now == (AddColumn("w__next", INT),)
    later = (*W_LAID_OUT, LakeColumn("w__next", INT, field_id=4))
    assert found.at_publication(later) == (RenameColumn(3, "w_dropped_3"), RenameColumn(4, "w"))
    assert found.kept == {3: 3}


@pytest.mark.parametrize("changed", [column(3, "w_bucket"), column(4, "w_bucket")])
def test_a_copy_gives_no_column_the_name_of_a_partition_field(changed: PublishedColumn) -> None:
    lake = (LAKE[0], replace(LAKE[1], partition_fields=("w_bucket",)), LAKE[2])
    with pytest.raises(FeatureNotSupported, match="name of a partition field"):
        plan(column(1, "id"), column(2, "v"), changed, lake=lake)
    own = plan(column(1, "id"), column(2, "w_bucket"), column(3, "w"), lake=lake)
    assert own.at_publication(lake) == (RenameColumn(2, "w_bucket"),)


@pytest.mark.parametrize("memory", [MEMORY, replace(MEMORY, relid=9), None])
def test_a_column_that_is_excluded_by_now_leaves(memory: RememberedColumns | None) -> None:
    options = TableOptions(excluded=("v",))
    found = plan(column(1, "id"), column(3, "w"), memory=memory, options=options)
    assert found.now == ()
    assert found.at_publication(LAKE) == (DropColumn(2),)


def test_a_column_of_an_adopted_table_stays() -> None:
    options = TableOptions(excluded=("v",), adopt=True)
    found = plan(column(1, "id"), column(3, "w"), memory=None, options=options)
    assert found.at_publication(LAKE) == ()
    computed = TableOptions(excluded=("v",), defaults=(("v", "1"),))
    found = plan(column(1, "id"), column(3, "w"), memory=None, options=computed)
    assert found.at_publication(LAKE) == ()


def test_a_copy_makes_and_ends_comments_of_first_and_last_values() -> None:
    clamp = TableOptions(on_unrepresentable="clamp")
    lake = (*LAKE[:2], LakeColumn("w", pa.date32(), field_id=3))
    plain = PublishedColumn(3, "w", 1082, -1, pa.date32())
    found = plan(column(1, "id"), column(2, "v"), plain, lake=lake, options=clamp)
    assert found.at_publication(lake) == (DescribeColumn(3, CLAMPED),)
    told = (*LAKE[:2], replace(lake[2], doc=CLAMPED))
    assert found.at_publication(told) == ()
    exact = plan(column(1, "id"), column(2, "v"), plain, lake=lake)
    assert exact.at_publication(told) == (DescribeColumn(3, ""),)
    keyed = plan(column(1, "id"), column(2, "v"), plain, lake=lake, options=clamp, key=("w",))
    assert keyed.at_publication(told) == (DescribeColumn(3, ""),)


def test_a_replaced_column_goes_with_the_next_attempt_too_under_another_name() -> None:
    """Column w got another type and the name v; the first attempt died before its publication."""
    first = plan(column(1, "id"), column(2, "w"), column(3, "v", 25))
    lake = (*LAKE, LakeColumn("v__next", TEXT, field_id=4))
    assert DropColumn(3) in first.at_publication(lake)
    names = ((1, "id", 23, 1), (2, "w", 23, 2), (3, "v", 25, 4))
    known = tuple(RememberedColumn(n, name, typ, -1, typ, id) for n, name, typ, id in names)
    kept, going = first.kept or {}, tuple(first.dropped)
    memory = replace(MEMORY, columns=known, kept=kept, going=going)
    again = (column(1, "id"), column(2, "x"), column(3, "v", 25))
    assert DropColumn(3) in plan(*again, lake=lake, memory=memory).at_publication(lake)
    assert from_text(memory.as_text()) == memory


def test_a_kept_column_that_is_written_again_does_not_go() -> None:
    """Dropped under ``keep``, and added again before a copy under ``drop``."""
    memory = replace(MEMORY, columns=MEMORY.columns[:2], kept={3: 3})
    found = plan(column(1, "id"), column(2, "v"), column(4, "w"), memory=memory, dropped=(3,))
    assert (found.written_to or {})["w"] == "w"
    assert found.at_publication(LAKE) == ()
