"""Which existing tables are taken for a creation that was not finished."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.workers.lake.two_columns import COLUMNS, stamp
from workers.lake.iceberg.new_table import is_unfinished
from workers.lake.table import LakeColumn, LakeIdent, LakeTable

NEW = LakeTable(LakeIdent("s", "t"), COLUMNS, "me", 1, stamp(10), records=0)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"snapshot_id": None, "stamp": None, "records": None},
        {"stamp": replace(stamp(10), epoch="of the attempt before")},
        {"stamp": None},
        {"columns": (replace(COLUMNS[0], nullable=False), COLUMNS[1])},
    ],
    ids=str,
)
def test_a_table_that_is_as_new_is_finished(change: dict[str, Any]) -> None:
    assert is_unfinished(replace(NEW, **change), COLUMNS, "me", stamp(10))


@pytest.mark.parametrize(
    "change",
    [
        {"owner": "you"},
        {"owner": None},
        {"columns": COLUMNS[:1]},
        {"columns": (COLUMNS[0], LakeColumn("v", pa.int64()))},
        {"stamp": stamp(11)},
        {"records": 1},
        {"records": None},
        {"sources": {"s": stamp(10)}},
    ],
    ids=str,
)
def test_any_other_table_is_not(change: dict[str, Any]) -> None:
    assert not is_unfinished(replace(NEW, **change), COLUMNS, "me", stamp(10))
