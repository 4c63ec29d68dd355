"""Segments that are applied to rows in memory."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tests.workers.lake.two_columns import COLUMNS
from workers.lake.memory.apply_segments import Work
from workers.lake.segment import Segment, WholeRowLookup
from workers.lake.staged_rows import Staged
from workers.lake.table import LakeIdent

PUBLISHED = ("id", "v")


def staged(rows: list[dict[str, Any]]) -> Staged:
    table = pa.Table.from_pylist(rows)
    return Staged(table.num_rows, table=table)


def work(*ids: int) -> Work:
    return Work(LakeIdent("s", "t"), COLUMNS, [{"id": each, "v": "old"} for each in ids])


def ids(done: Work) -> list[tuple[int, str]]:
    return [(row["id"], row["v"]) for row in done.rows]


def test_a_merge_comes_before_the_append_and_counts_what_it_matched() -> None:
    done = work(1, 2, 3)
    changes = staged(
        [
            {"op": 0, "b0": 1, "c0": 9, "c1": "new"},
            {"op": 1, "b0": 2, "c0": None, "c1": None},
            {"op": 1, "b0": 8, "c0": None, "c1": None},
        ]
    )
    done.apply(Segment(PUBLISHED, ("id",), merge=changes, append=staged([{"c0": 2, "c1": "x"}])))
    assert ids(done) == [(9, "new"), (3, "old"), (2, "x")]
    [(merge, outcome)] = done.merges
    assert (merge.rows, merge.updates, outcome.matched, outcome.added) == (3, 1, 2, 1)
    assert done.appended == 1


def test_truncate_comes_first() -> None:
    done = work(1)
    done.apply(Segment(PUBLISHED, truncate=True, append=staged([{"c0": 5, "c1": "x"}])))
    assert ids(done) == [(5, "x")]


def test_whole_rows_are_changed_at_their_positions() -> None:
    done = work(1, 1, 2)

    def decide(found: pa.Table) -> tuple[Staged | None, Staged | None]:
        positions = found["p"].to_pylist()
        assert positions == [0, 1]
        moved = [
            {"f": "memory", "p": positions[0], "op": 1, "c0": None, "c1": None},
            {"f": "memory", "p": positions[1], "op": 0, "c0": 7, "c1": "new"},
        ]
        return staged(moved), staged([{"c0": 8, "c1": "x"}])

    images = staged([{"image": 0, "n": 5, "c0": 1, "c1": "old"}])
    done.apply(Segment(PUBLISHED, row_lookup=WholeRowLookup(images, decide)))
    assert ids(done) == [(7, "new"), (2, "old"), (8, "x")]


def test_rows_of_another_branch_are_appended() -> None:
    done = work(1)
    done.elsewhere["b"] = ({"id": 4, "v": "there"},)
    done.apply(Segment(PUBLISHED, from_branch="b"))
    assert ids(done) == [(1, "old"), (4, "there")]
