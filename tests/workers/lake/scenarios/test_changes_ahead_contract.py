"""Changes with new rows in files of before the commit: what is applied, and what is refused.

Without a gateway, and where Spark is the writer, no such changes are made.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from catalog.errcodes import SerializationFailure
from tests.workers.lake.contract import COLUMNS, PUBLISHED, Make, Table, append, stage, stamp
from workers.lake.destination import Destination
from workers.lake.effects import Counts
from workers.lake.segment import (
    DELETE_LINE,
    INSERT_LINE,
    UPDATE_LINE,
    ChangesAhead,
    RowsOf,
    Segment,
)
from workers.lake.table import LakeColumn, LakeIdent

Line = tuple[int, int]
MANY = 20


class Filled(Table):
    """Rows 0 to 39; ``columns`` are those of the table."""

    def __init__(
        self, dest: Destination, ident: LakeIdent, columns: Sequence[LakeColumn] = COLUMNS[:3]
    ) -> None:
        self.dest, self.ident, self.attempt = dest, ident, 0
        dest.create_table(ident, columns, owner="me", relid=7, stamp=stamp(10))
        self.batch([append(dest, [(n, f"v{n}", None) for n in range(2 * MANY)])], 20)

    def ahead(self, lines: Sequence[Line], v: str) -> ChangesAhead:
        """A part of a transaction; ``v`` begins the values of the new rows."""
        ops, keys = zip(*lines, strict=True)
        staged = stage(self.dest, op=pa.array(ops, pa.int8()), b0=pa.array(keys, pa.int64()))
        new = [key for op, key in lines if op != DELETE_LINE]
        table = pa.table(
            {
                "c0": pa.array(new, pa.int64()),
                "c1": pa.array([f"{v}{key}" for key in new], pa.string()),
                "c2": pa.array([None] * len(new), pa.string()),
            }
        )
        rows_of = RowsOf(self.ident, PUBLISHED)
        return ChangesAhead(staged, self.dest.stage(table.to_batches(), table.schema, rows_of))

    def refuses(self, *parts: ChangesAhead) -> bool:
        """Is it 40001, and are the rows those of before?"""
        before = self.rows()
        with pytest.raises(SerializationFailure):
            self.dest.write(self.ident, self.branch(), [segment(*parts)], stamp(99))
        return self.rows() == before


def segment(*parts: ChangesAhead) -> Segment:
    return Segment(PUBLISHED, ("id",), ahead=parts)


def updates(*keys: int) -> list[Line]:
    return [(UPDATE_LINE, key) for key in keys]


@pytest.fixture(params=["memory_lake", pytest.param("iceberg", marks=pytest.mark.spark)])
def lake(request: pytest.FixtureRequest) -> Destination:
    make: Make = request.getfixturevalue(request.param)
    return make(local_relation_rows=10)


def test_the_last_part_wins_and_missing_rows_are_counted(
    lake: Destination, lake_ident: LakeIdent
) -> None:
    table = Filled(lake, lake_ident)
    first = table.ahead([*updates(*range(MANY), 99), (DELETE_LINE, 30), (DELETE_LINE, 98)], "a")
    last = [*updates(*range(5, 5 + MANY), 30), (DELETE_LINE, 31), (INSERT_LINE, 50)]
    counts = table.batch([segment(first, table.ahead(last, "b"))], 30)
    assert counts == Counts(appended=1, merged=2 * MANY + 2, update_missing=2, delete_missing=1)
    left = {n: f"v{n}" for n in range(2 * MANY)} | {n: f"a{n}" for n in range(5)}
    left |= {n: f"b{n}" for n in (*range(5, 5 + MANY), 50)}
    assert {row[0]: row[1] for row in table.rows()} == {
        key: v for key, v in left.items() if key not in (30, 31)
    }


def test_a_key_of_two_rows_is_refused(lake: Destination, lake_ident: LakeIdent) -> None:
    table = Filled(lake, lake_ident)
    table.batch([append(table.dest, [(3, "twice", None)])], 21)
    assert table.refuses(table.ahead(updates(*range(MANY)), "a"))
    table.batch([segment(table.ahead(updates(*range(10, 10 + MANY)), "a"))], 30)


def test_a_second_row_of_a_key_is_refused(lake: Destination, lake_ident: LakeIdent) -> None:
    """An earlier part of the transaction may delete the first row."""
    table = Filled(lake, lake_ident)
    inserts = [*updates(*range(10, 10 + MANY)), (INSERT_LINE, 9)]
    assert table.refuses(table.ahead(inserts, "a"))
    deletes = [*updates(*range(10, 10 + MANY)), (DELETE_LINE, 9)]
    table.batch([segment(table.ahead(deletes, "a"), table.ahead(inserts, "b"))], 30)
    assert (9, "b9") in {row[:2] for row in table.rows()}


def test_a_column_that_only_the_lake_has_is_refused(
    lake: Destination, lake_ident: LakeIdent
) -> None:
    """The old rows alone have the values."""
    table = Filled(lake, lake_ident, COLUMNS)
    assert table.refuses(table.ahead(updates(*range(MANY)), "a"))
