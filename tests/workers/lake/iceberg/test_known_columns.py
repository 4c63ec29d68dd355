"""When a table's columns are read again, and what new columns change."""

from __future__ import annotations

from typing import cast

import pyarrow as pa

from tests.workers.lake.two_columns import COLUMNS
from workers.lake.iceberg.known_columns import KnownColumns
from workers.lake.interfaces.table_api import TableApi
from workers.lake.table import LakeColumn, LakeIdent

IDENT = LakeIdent("public", "t")


class Columns:
    """Tells the same columns, and counts."""

    asked = 0

    def columns(self, _: LakeIdent) -> tuple[LakeColumn, ...]:
        self.asked += 1
        return COLUMNS


def test_columns_are_read_once_until_they_are_forgotten() -> None:
    tables = Columns()
    known = KnownColumns(cast("TableApi", tables))
    assert [known.of(IDENT), known.of(IDENT)] == [COLUMNS, COLUMNS]
    assert tables.asked == 1
    known.forget(IDENT)
    assert (known.of(IDENT), tables.asked) == (COLUMNS, 2)


def test_new_columns_begin_new_key_ranges() -> None:
    known = KnownColumns(cast("TableApi", Columns()))
    ranges = known.key_ranges(IDENT)
    known.note(IDENT, COLUMNS)
    assert known.key_ranges(IDENT) is ranges
    wider = (*COLUMNS, LakeColumn("w", pa.int64()))
    assert known.note(IDENT, wider) == wider
    assert known.key_ranges(IDENT) is not ranges
