"""Segments in slices, each a write without a position, leave what one write leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from tests.workers.lake.contract import Make, Table, append, merge, stamp
from tests.workers.lake.scenarios.test_direct_sequences import Part, batches_of
from workers.lake.effects import Counts, joined
from workers.lake.table import LakeIdent


def _in_slices(table: Table, parts: Sequence[Part], lsn: int) -> Counts:
    """Write every segment by itself, remove what was staged, then write the position."""
    dest, branch, effects = table.dest, table.branch(), []
    for part in parts:
        segment = part.segment(dest, table.ident)
        effects.append(dest.write_branch(table.ident, branch, [segment], None))
        for staged in (segment.append, segment.merge):
            if staged is not None:
                dest.discard(staged)
    effects.append(dest.write_branch(table.ident, branch, [], stamp(lsn)))
    [counts] = dest.count([reduce(joined, effects)])
    dest.publish(table.ident, branch, stamp(lsn))
    assert table.lsn() == lsn
    return counts


def _at_once(table: Table, parts: Sequence[Part], lsn: int) -> Counts:
    return table.batch([part.segment(table.dest, table.ident) for part in parts], lsn)


def _rows_and_counts(
    table: Table, seed: int, write: Callable[[Table, Sequence[Part], int], Counts]
) -> list[object]:
    found: list[object] = []
    for n, parts in enumerate(batches_of(seed, 4)):
        counts = write(table, parts, 20 + n)
        emptied = any(part.truncate for part in parts)
        found += [table.rows(), None if emptied else counts]
    return found


def test_slices_leave_the_rows_and_counts_of_one_write(
    make: Make, memory_lake: Make, lake_ident: LakeIdent
) -> None:
    other = LakeIdent(lake_ident.schema, f"{lake_ident.table}_at_once")
    expected = _rows_and_counts(Table(memory_lake(), other), 5, _at_once)
    table = Table(make(local_relation_rows=10), lake_ident)
    assert _rows_and_counts(table, 5, _in_slices) == expected


def test_no_slice_is_shown_and_none_has_a_position(table: Table) -> None:
    """Also a reader of the branch finds no position before the transaction's end."""
    table.batch([append(table.dest, [(1, "a", None)])], 20)
    branch = table.branch()
    for n in (2, 3):
        rows = append(table.dest, [(n, "b", None)])
        table.dest.write_branch(table.ident, branch, [rows], None)
    found = merge(table.dest, [(0, 3, 4, "c", None, False), (1, 1, None, None, None, False)])
    table.dest.write_branch(table.ident, branch, [found], None)
    assert ([row[0] for row in table.rows()], table.lsn()) == ([1], 20)
    table.dest.write_branch(table.ident, branch, [], stamp(30))
    table.dest.publish(table.ident, branch, stamp(30))
    assert ([row[:2] for row in table.rows()], table.lsn()) == ([(2, "b"), (4, "c")], 30)
