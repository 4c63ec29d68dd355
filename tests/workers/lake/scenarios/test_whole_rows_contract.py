"""Tables matched by whole rows (REPLICA IDENTITY FULL), on both lakes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tests.workers.lake.contract import BRANCH, Make, Table, append, full, read_rows, stage, stamp
from workers.lake.effects import Counts
from workers.lake.segment import Segment, WholeRowLookup
from workers.lake.staged_rows import Staged
from workers.lake.table import LakeColumn, LakeIdent


def test_whole_rows_are_found_at_most_n_times_with_nulls_equal(table: Table) -> None:
    table.batch(
        [append(table.dest, [(1, "a", None)] * 5 + [(2, None, None)] * 2 + [(3, "c", None)])], 20
    )
    seen: list[Any] = []

    def resolve(found: list[Any]) -> Any:
        seen.extend(found)
        by_image: dict[int, list[Any]] = {}
        for image, f, p in found:
            by_image.setdefault(image, []).append((f, p))
        positions = [(*by_image[0][0], 1, None, None), (*by_image[0][1], 1, None, None)]
        positions += [(*by_image[1][0], 0, 20, "changed")]
        return positions, [(9, "new", "b")]

    counts = table.batch(
        [full(table.dest, [(1, "a", 2), (2, None, 1), (7, "nobody", 3)], resolve)], 30
    )
    assert sorted(image for image, _, _ in seen) == [0, 0, 1]
    assert counts == Counts(appended=1, merged=3)
    expected = [(1, "a")] * 3 + [(2, None), (3, "c"), (9, "new"), (20, "changed")]
    assert [row[:2] for row in table.rows()] == expected
    assert table.lsn() == 30


def test_many_whole_rows_go_through_files(make: Make, lake_ident: LakeIdent) -> None:
    table = Table(make(local_relation_rows=10), lake_ident)
    table.batch([append(table.dest, [(n, "a", None) for n in range(100)] * 2)], 20)

    def resolve(found: list[Any]) -> Any:
        return [(f, p, image % 2, image, "b") for image, f, p in found], None

    counts = table.batch([full(table.dest, [(n, "a", 1) for n in range(100)], resolve)], 30)
    assert counts == Counts(merged=100)
    expected = [(n, v) for n in range(100) for v in (["a", "b"] if n % 2 == 0 else ["a"])]
    assert [row[:2] for row in table.rows()] == expected


def test_whole_rows_that_are_not_there_change_nothing(table: Table) -> None:
    table.batch([append(table.dest, [(1, "a", None)])], 20)
    table.batch([full(table.dest, [(5, "x", 1)], lambda found: (None, None))], 30)
    assert (len(table.rows()), table.lsn()) == (1, 30)


def test_whole_rows_see_the_segments_before_them(table: Table) -> None:
    def resolve(found: list[Any]) -> Any:
        (_, f, p) = found[0]
        return [(f, p, 1, None, None)], None

    table.batch(
        [
            append(table.dest, [(1, "a", None), (2, "b", None)]),
            full(table.dest, [(1, "a", 1)], resolve),
        ],
        20,
    )
    assert [row[0] for row in table.rows()] == [2]


def test_columns_may_be_called_what_the_statements_call_their_tables(
    make: Make, lake_ident: LakeIdent
) -> None:
    """To Spark ``t._file`` is a field of column t where there is one."""
    dest: Any = make()
    names = ("t", "s", "k", "f", "p", "c0")
    columns = [LakeColumn(name, pa.int64()) for name in names]
    dest.create_table(lake_ident, columns, owner="me", relid=7, stamp=stamp(10))
    dest.create_branch(lake_ident, BRANCH)

    def rows(count: int, **more: pa.Array[Any] | pa.ChunkedArray[Any]) -> Staged:
        values = {f"c{n}": pa.array([n] * count, pa.int64()) for n in range(len(names))}
        return stage(dest, **(values | more))

    def resolve(found: pa.Table) -> Any:
        assert found.column("image").to_pylist() == [0, 0]
        places = {"f": found.column("f"), "p": found.column("p")}
        ops = pa.array([0, 1], pa.int8())
        return rows(2, **places, op=ops, c0=pa.array([7, 7], pa.int64())), None

    images = rows(1, image=pa.array([0], pa.int64()), n=pa.array([2], pa.int32()))
    merged = rows(1, op=pa.array([0], pa.int8()), b0=pa.array([7], pa.int64()))
    segments = [
        Segment(names, append=rows(2)),
        Segment(names, row_lookup=WholeRowLookup(images, resolve)),
        Segment(names, ("t",), merge=merged),
    ]
    counts = dest.write(lake_ident, BRANCH, segments, stamp(20))
    assert counts == Counts(appended=2, merged=3)
    dest.publish(lake_ident, BRANCH, stamp(20))
    assert read_rows(dest, lake_ident) == [(0, 1, 2, 3, 4, 5)]
