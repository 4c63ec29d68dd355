"""Columns that are filled: their names, and what is left of an attempt that failed.

The whole way, with a worker that dies at each step, is in ``tests/workers/apply``.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from tests.workers.subscribed import Subscribed
from workers.lake.column_changes import AddColumn, ColumnChange, DropColumn, RenameColumn
from workers.lake.memory.destination import MemoryDestination
from workers.lake.table import MAIN, Identity, LakeColumn, LakeIdent
from workers.tables.fill_columns import columns_to_fill, with_names

IDENT = LakeIdent("public", "a")
SEVEN = pa.scalar(7, pa.int32())
ADDED = AddColumn("w", pa.int32())


def test_a_hidden_name_is_free_or_left_by_a_dead_worker() -> None:
    for there, hidden in (
        ((), "w__next"),
        ((LakeColumn("w__next", pa.int32()),), "w__next"),
        ((LakeColumn("w__next", pa.string()),), "w__next__next"),
    ):
        (found,) = columns_to_fill(there, [DropColumn(1), ADDED], {"w": SEVEN})
        assert (found.name, found.hidden, found.value) == ("w", hidden, SEVEN)


def test_a_hidden_name_is_no_published_column() -> None:
    there = [LakeColumn("w__next", pa.int32(), field_id=4)]
    (found,) = columns_to_fill(there, [ADDED], {"w": SEVEN}, [4])
    assert found.hidden == "w__next__next"
    for other in (AddColumn("w__next", pa.int32()), RenameColumn(4, "w__next")):
        (found,) = columns_to_fill([], [ADDED, other], {"w": SEVEN})
        assert found.hidden == "w__next__next"


def test_other_changes_come_with_the_values_in_their_order() -> None:
    lake = [LakeColumn("v", pa.string(), field_id=2), LakeColumn("w__next", pa.int32(), True, 5)]
    other = AddColumn("z", pa.int32())
    changes: list[ColumnChange] = [RenameColumn(2, "w_dropped_2"), ADDED, other]
    filled = columns_to_fill(lake, changes, {"w": SEVEN})
    assert with_names(lake, changes, filled) == [changes[0], RenameColumn(5, "w"), other]


def test_a_main_that_moved_meanwhile_is_refused_and_the_next_attempt_fills_it(
    world: Subscribed,
) -> None:
    """A commit comes between the look at main and the publication."""

    def other_writer(operation: str) -> None:
        if operation == "publish" and not moved:
            moved.append(operation)
            world.put("a", (1, 10), (2, 20), (9, 90), ours=True)

    moved: list[str] = []
    world.put("a", (1, 10), (2, 20), ours=True)
    dest = MemoryDestination(world.lake, identity=Identity(world.sub.oid), failpoint=other_writer)
    world.worker(dest)
    assert world.writer is not None
    rel = world.rel("a")

    def fill() -> None:
        assert world.writer is not None
        world.writer.fill_columns(rel, [ADDED], {"w": SEVEN}, lambda _: "remembered")

    with pytest.raises(ReplicationError) as caught:
        fill()
    assert caught.value.code == "40001"
    assert world.lake.tables[IDENT].publisher_columns == ""
    world.writer.read_again([rel])
    fill()
    assert world.lake.tables[IDENT].publisher_columns == "remembered"
    assert [row["w"] for row in world.lake.rows(IDENT, MAIN)] == [7, 7, 7]
    assert world.writer.open(rel).lsn == LSN(0)
