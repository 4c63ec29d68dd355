"""Which columns are clamped, and what their comments say."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pyarrow as pa
import pytest

from catalog.pg_subscription import TableOptions
from workers.changes.cannot_follow import CannotFollow
from workers.changes.column_comments import (
    CLAMPED,
    comments_of_copy,
    comments_to_make,
    described,
    ended,
    is_clamped,
)
from workers.lake.column_changes import DescribeColumn
from workers.lake.table import LakeColumn

CLAMP = TableOptions(on_unrepresentable="clamp")
DUE = LakeColumn("due", pa.date32(), field_id=2)


@pytest.mark.parametrize(
    ("type", "clamped"),
    [
        (pa.date32(), True),
        (pa.timestamp("us"), True),
        (pa.timestamp("us", "UTC"), True),
        (pa.list_(pa.date32()), True),
        (pa.string(), False),
        (pa.list_(pa.string()), False),
        (pa.decimal128(9, 2), False),
    ],
    ids=str,
)
def test_dates_and_timestamps_are(type: pa.DataType, clamped: bool) -> None:
    assert is_clamped("due", type, CLAMP, ()) == clamped
    assert not is_clamped("due", type, TableOptions(on_unrepresentable="null"), ())


def test_a_key_stays_exact() -> None:
    assert not is_clamped("due", pa.date32(), CLAMP, ["due"])
    assert not is_clamped("due", pa.date32(), replace(CLAMP, keys=(("id", "due"),)), ())


def test_a_new_table_says_so() -> None:
    columns = (LakeColumn("id", pa.int32()), DUE, LakeColumn("own", pa.date32()))
    made = described(columns, {"id", "due"}, CLAMP, {"id"})
    assert [each.doc for each in made] == ["", CLAMPED, ""]


def test_a_key_is_declared_by_the_publisher_s_name() -> None:
    options = replace(CLAMP, keys=(("until",),), columns=(("until", "due"),))
    assert not is_clamped("due", pa.date32(), options, ())


@pytest.mark.parametrize(
    ("doc", "options", "text"),
    [
        ("", CLAMP, CLAMPED),
        (CLAMPED, CLAMP, None),
        (CLAMPED, TableOptions(), None),  # the rows are as they were
        ("", TableOptions(), None),
        ("a user's", CLAMP, None),
    ],
)
def test_comments_come_and_a_user_s_stays(
    doc: str, options: TableOptions, text: str | None
) -> None:
    changes = list(comments_to_make([replace(DUE, doc=doc)], {"due"}, options, ()))
    assert changes == ([] if text is None else [DescribeColumn(2, text)])


def test_a_column_of_the_lake_s_own_is_left_alone() -> None:
    assert list(comments_to_make([DUE], (), CLAMP, ())) == []


@pytest.mark.parametrize("options", [CLAMP, TableOptions()])
def test_a_column_with_such_values_finds_no_rows(options: TableOptions) -> None:
    with pytest.raises(CannotFollow, match='"due" is of a key now'):
        list(comments_to_make([replace(DUE, doc=CLAMPED)], {"due"}, options, {"due"}))


@pytest.mark.parametrize(
    ("doc", "exact", "text"),
    [
        ("", (), CLAMPED),
        (CLAMPED, (), None),
        (CLAMPED, {"due"}, ""),
        ("", {"due"}, None),
        ("a user's", {"due"}, None),
        ("a user's", (), None),
    ],
)
def test_a_copy_of_all_rows_settles_the_comments(
    doc: str, exact: Collection[str], text: str | None
) -> None:
    columns = [replace(DUE, doc=doc), LakeColumn("own", pa.date32(), field_id=3)]
    changes = list(comments_of_copy(columns, {"due"}, exact))
    assert changes == ([] if text is None else [DescribeColumn(2, text)])


def test_a_dropped_column_says_since_when() -> None:
    text = "pgsub: dropped 2026-11-28 at 0/1A, NULL since"
    columns = [DUE, replace(DUE, field_id=4, doc="a user's"), replace(DUE, field_id=5)]
    assert ended(columns, {2, 4}, "2026-11-28 at 0/1A") == (
        DescribeColumn(2, text),
        DescribeColumn(4, f"a user's; {text}"),
    )
