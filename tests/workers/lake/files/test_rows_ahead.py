"""What files written before the commit do to the rows, against a row-by-row application."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.errcodes import InternalError
from workers.lake.effects import Counts
from workers.lake.files.rows_ahead import (
    NotAhead,
    dead_rows,
    decide,
    in_groups,
    lines_of,
    own_of,
)
from workers.lake.segment import DELETE_LINE, INSERT_LINE, UPDATE_LINE, ChangesAhead
from workers.lake.staged_rows import LayoutId, NewFile, OwnFiles, Staged

Line = tuple[int, int]
"""The operation, and the key."""
LAYOUT = LayoutId("uuid", 0, 0, 2)


def part(lines: Sequence[Line], name: str, *sizes: int) -> ChangesAhead:
    """A part with files of the sizes, by default with one file."""
    ops, keys = zip(*lines, strict=True)
    table = pa.table({"op": pa.array(ops, pa.int8()), "b0": pa.array(keys, pa.int32())})
    rows = sum(op != DELETE_LINE for op in ops)
    files = tuple(NewFile(f"{name}{n}", 1, size) for n, size in enumerate(sizes or (rows,)))
    own = OwnFiles(files, LAYOUT, lambda _paths: None, takes_deletes=True)
    return ChangesAhead(Staged(len(lines), table=table), Staged(rows, own=own))


def looked_up(parts: Sequence[ChangesAhead], held: Sequence[int]) -> np.ndarray:
    keys = lines_of(parts).to_look_up()
    assert len(set(keys["b0"].to_pylist())) == keys.num_rows
    return keys.filter(pa.array([key in held for key in keys["b0"].to_pylist()]))["k"].to_numpy()


def dead_of(parts: Sequence[ChangesAhead], held: Sequence[int]) -> dict[str, list[int]]:
    decided = decide(lines_of(parts), looked_up(parts, held))
    return {path: at.tolist() for path, at in dead_rows(parts, decided.dead).items()}


def test_the_last_part_wins_and_missing_rows_get_no_version() -> None:
    parts = [part([(UPDATE_LINE, 1), (UPDATE_LINE, 9)], "a"), part([(UPDATE_LINE, 1)], "b")]
    assert dead_of(parts, [1]) == {"a0": [0, 1]}
    assert dead_of(parts, []) == {"a0": [0, 1], "b0": [0]}
    assert dead_of(parts, [1, 9]) == {"a0": [0]}


def test_positions_go_on_in_the_next_file_of_a_part() -> None:
    parts = [part([(UPDATE_LINE, key) for key in range(5)], "a", 2, 3)]
    assert dead_of(parts, [0, 2, 4]) == {"a0": [1], "a1": [1]}
    assert dead_of(parts, [0, 1, 2, 3, 4]) == {}


def test_two_rows_of_a_key_are_left_to_the_look_up_of_changes() -> None:
    lines = lines_of([part([(UPDATE_LINE, 1)], "a")])
    with pytest.raises(NotAhead):
        decide(lines, np.array([0, 0]))
    lines = lines_of([part([(INSERT_LINE, 1)], "a")])
    with pytest.raises(NotAhead):
        decide(lines, np.array([0]))


def test_groups_keep_the_order_and_the_limit() -> None:
    parts = [part([(UPDATE_LINE, key) for key in range(size)], "a") for size in (2, 2, 5, 1, 1)]
    groups = list(in_groups(parts, 4))
    assert [[each.keys.rows for each in group] for group in groups] == [[2, 2], [5], [1, 1]]
    assert list(in_groups((), 4)) == []


def test_rows_without_files_are_no_changes_ahead() -> None:
    each = part([(UPDATE_LINE, 1)], "a")
    with pytest.raises(InternalError):
        own_of(ChangesAhead(each.keys, each.keys))


KEYS = st.integers(0, 5)
CHANGES = st.dictionaries(KEYS, st.sampled_from([UPDATE_LINE, DELETE_LINE]))


@given(st.sets(KEYS), st.lists(st.tuples(CHANGES, st.sets(KEYS)), min_size=1, max_size=6))
def test_rows_are_those_of_one_part_after_the_other(
    held: set[int], steps: list[tuple[dict[int, int], set[int]]]
) -> None:
    """A row is a key and the number of its version, which is that of a new row."""
    rows: dict[int, int] = dict.fromkeys(held, -1)
    parts: list[ChangesAhead] = []
    versions: list[int] = []  # the key of each new row
    counts = Counts()
    for changes, inserted in steps:
        lines = [(op, key) for key, op in changes.items()]
        merged = sum(key in rows for key in changes)
        missing = {op: sum(o == op and k not in rows for k, o in changes.items()) for op in (0, 1)}
        for key, op in changes.items():
            if op == UPDATE_LINE:
                versions.append(key)
            if key in rows and op == DELETE_LINE:
                del rows[key]
            elif key in rows:
                rows[key] = len(versions) - 1
        new = sorted(inserted - rows.keys())
        lines += [(INSERT_LINE, key) for key in new]
        for key in new:
            versions.append(key)
            rows[key] = len(versions) - 1
        if lines:
            parts.append(part(lines, f"part {len(parts)} file "))
        counts = Counts(
            counts.appended + len(new),
            counts.merged + merged,
            counts.update_missing + missing[UPDATE_LINE],
            counts.delete_missing + missing[DELETE_LINE],
        )
    if not parts:
        return
    decided = decide(lines_of(parts), looked_up(parts, sorted(held)))
    assert decided.counts == counts
    living = {int(at) for at in np.flatnonzero(~decided.dead)}
    assert living == {version for version in rows.values() if version >= 0}
    deleted = held - {key for key, version in rows.items() if version < 0}
    assert deleted == {key for key in held if any(key in part_keys(each) for each in parts)}


def part_keys(each: ChangesAhead) -> set[int]:
    assert each.keys.table is not None
    return {int(key) for key in each.keys.table["b0"].to_numpy()}
