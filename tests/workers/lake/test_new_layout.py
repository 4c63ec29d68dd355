"""Layouts of new lake tables: what a column may be used for."""

from __future__ import annotations

import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_subscription import TableOptions
from catalog.table_layout import LayoutField
from workers.lake.new_layout import PLAIN, can_transform, check_layout, layout_of
from workers.lake.table import LakeColumn, LakeIdent

IDENT = LakeIdent("s", "t")
COLUMNS = (
    LakeColumn("id", pa.int64()),
    LakeColumn("at", pa.timestamp("us", "UTC")),
    LakeColumn("x", pa.float64()),
    LakeColumn("tags", pa.list_(pa.string())),
)


def test_the_words_of_the_configuration_become_a_layout() -> None:
    options = TableOptions(
        partition_by=("days(at)",),
        sort_by=("id desc",),
        location="/lake/t",
        properties=(("a", "b"),),
    )
    found = layout_of(options)
    assert found.partition_by == (LayoutField("at", "day"),)
    assert found.sort_by == (LayoutField("id", descending=True, nulls_first=True),)
    assert (found.location, found.properties) == ("/lake/t", (("a", "b"),))
    assert layout_of(TableOptions()) == PLAIN
    check_layout(found, COLUMNS, IDENT)


@pytest.mark.parametrize(
    ("word", "sqlstate", "said"),
    [
        ("hours(ID)", "42703", 'column "ID" in partition_by of lake table "s.t" does not exist'),
        (
            "days(id)",
            "42804",
            'column "id" in partition_by of lake table "s.t" cannot be used with day',
        ),
        (
            "x",
            "42804",
            'column "x" in partition_by of lake table "s.t" cannot be used with identity',
        ),
        ("tags", "42804", "cannot be used with identity"),
        ("truncate(2, at)", "42804", "cannot be used with truncate"),
    ],
)
def test_columns_that_cannot_be_used_are_refused(word: str, sqlstate: str, said: str) -> None:
    with pytest.raises(ReplicationError) as error:
        check_layout(layout_of(TableOptions(partition_by=(word,))), COLUMNS, IDENT)
    assert error.value.code == sqlstate
    assert said in error.value.primary
    with pytest.raises(ReplicationError) as error:
        check_layout(layout_of(TableOptions(sort_by=(word,))), COLUMNS, IDENT)
    assert "in sort_by of" in error.value.primary


def test_a_column_without_a_known_type_is_checked_later() -> None:
    layout = layout_of(TableOptions(partition_by=("days(made)",)))
    check_layout(layout, COLUMNS, IDENT, later={"made"})
    with pytest.raises(ReplicationError):
        check_layout(layout, COLUMNS, IDENT)


def test_floats_and_lists_have_no_partitions() -> None:
    for type in (pa.float64(), pa.float32(), pa.list_(pa.int64())):
        assert not can_transform("identity", type)
    assert not can_transform("hour", pa.date32())
    assert not can_transform("bucket", pa.bool_())
