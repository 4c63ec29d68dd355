"""What a run becomes, as far as keys are concerned that may be in the table already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from catalog.pg_lsn import LSN
from catalog.pg_subscription import TableOptions
from tests.workers.transactions import batch, relation, row
from workers.changes.by_table import Run, frame_batch
from workers.changes.failed_transaction import FailedTransaction
from workers.changes.relation_map import LogicalRepRelMap
from workers.changes.segments import build_segments
from workers.columnar.column_reader import in_form
from workers.lake.memory.destination import MemoryDestination
from workers.lake.table import MAIN, LakeColumn, LakeIdent, LakeTable, Stamp
from workers.proto.messages import (
    ColumnStatus,
    Delete,
    Insert,
    Message,
    Truncate,
    TupleColumn,
    Update,
)
from workers.publisher.binary_columns import BinaryForms
from workers.publisher.replica_identity import Coverage

IDENT = LakeIdent("public", "a")
COLUMNS = (LakeColumn("id", pa.int64()), LakeColumn("v", pa.int32()))
A = relation(1, "a", "id", "v")
STAMP = Stamp("pg_1", LSN(100), "epoch", LSN(0))

CAME_AND_WENT: Sequence[Message] = [A, Insert(1, row("1", "5")), Delete(1, "K", row("1", ""))]
MOVED_AWAY: Sequence[Message] = [
    A,
    Insert(1, row("1", "5")),
    Update(1, "K", row("1", ""), row("2", "5")),
]


def applied(
    messages: Sequence[Message], held: Sequence[int], *, probe: bool = True, **options: Any
) -> list[int]:
    """The keys in the table after it was given the messages; it held some before."""
    dest = MemoryDestination()
    table = dest.create_table(IDENT, COLUMNS, owner="u", relid=1, stamp=STAMP)
    made = dest.lake.tables[IDENT]
    dest.lake.commit(made, MAIN, [{"id": key, "v": 0} for key in held])
    taken = batch(messages)
    framed = frame_batch(taken, LogicalRepRelMap())
    runs = framed.runs(dict.fromkeys(framed.targets, taken.final_lsn > 0))["public", "a"]
    runs = [replace(run, coverage=Coverage.WHOLE) for run in runs]
    write(dest, table, runs, probe=probe, **options)
    return sorted(found["id"] for found in dest.lake.rows(IDENT, "pgsub_1"))


def write(
    dest: MemoryDestination, table: LakeTable, runs: Sequence[Run], *, probe: bool, **options: Any
) -> None:
    """What the runs do to the table, on a branch."""
    work = build_segments(runs, table, TableOptions(**options), dest, look_up_keys=probe)
    dest.create_branch(IDENT, "pgsub_1")
    try:
        dest.write(IDENT, "pgsub_1", work.segments, STAMP)
    finally:
        work.discard()
        assert dest.staged == 0


@pytest.mark.parametrize("messages", [CAME_AND_WENT, MOVED_AWAY], ids=["deleted", "moved"])
def test_an_inserted_key_is_in_the_way_even_if_it_is_left_in_the_same_batch(
    messages: Sequence[Message],
) -> None:
    """As when the INSERT were a batch of its own."""
    with pytest.raises(FailedTransaction) as caught:
        applied(messages, [1, 9])
    assert (caught.value.txn, caught.value.error.code) == (0, "23505")
    kept = [2] if messages is MOVED_AWAY else []
    assert applied(messages, [9]) == [*kept, 9]
    assert applied(messages, [1, 9], on_key_conflict="overwrite") == [*kept, 9]


def test_a_table_we_copied_whole_is_not_searched() -> None:
    assert applied(CAME_AND_WENT, [9], probe=False) == [9]


def test_an_emptied_table_is_not_searched() -> None:
    emptied = [A, Truncate(False, False, (1,)), *CAME_AND_WENT[1:]]
    assert applied(emptied, [1, 9]) == []


@pytest.mark.parametrize("kept", [False, True])
def test_changes_that_keep_values_of_the_table_s_may_be_spark_s_to_make(
    monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    """Their rows must not come here to be written again, so nothing is gained in memory."""
    asked: list[LakeIdent | None] = []
    stage = MemoryDestination.stage

    def staged(dest: MemoryDestination, *args: Any, **more: Any) -> Any:
        asked.append(more.get("changes_of"))
        return stage(dest, *args, **more)

    monkeypatch.setattr(MemoryDestination, "stage", staged)
    unsent = TupleColumn(ColumnStatus.UNCHANGED, b"")
    new = (*row("1"), unsent) if kept else row("1", "6")
    assert applied([A, Update(1, None, None, new)], [1, 9], probe=False) == [1, 9]
    assert asked == [None if kept else IDENT]


def binary(*values: bytes) -> tuple[TupleColumn, ...]:
    return tuple(TupleColumn(ColumnStatus.BINARY, value) for value in values)


@pytest.mark.parametrize("identity", ["d", "f"])
@pytest.mark.parametrize("probe", [False, True])
@pytest.mark.parametrize("damaged", [0, 1])
def test_014_a_binary_value_that_is_none_is_its_transaction_s_fault(
    identity: str, probe: bool, damaged: int
) -> None:
    """Wherever it is read: the key where the table is asked for it, all of a row to be found."""
    dest = MemoryDestination()
    table = dest.create_table(IDENT, COLUMNS, owner="u", relid=1, stamp=STAMP)
    described = relation(1, "a", "id", "v", identity=identity)
    sound = binary(b"\0\0\0\1", b"\0\0\0\5")
    wrong = list(sound)
    wrong[damaged] = binary(b"\0\0\0")[0]
    update = Update(1, None, None, tuple(wrong))
    if identity == "f":
        update = Update(1, "O", sound, tuple(wrong))
    taken = batch([described, Insert(1, sound)], [update])
    framed = frame_batch(taken, LogicalRepRelMap())
    [run] = framed.runs(dict.fromkeys(framed.targets, taken.final_lsn > 0))["public", "a"]
    assert run.changes is not None
    changes = in_form(run.changes, BinaryForms(lambda _: {}).of(described))
    run = replace(run, changes=changes, coverage=Coverage.WHOLE)
    with pytest.raises(FailedTransaction) as caught:
        write(dest, table, [run], probe=probe)
    assert (caught.value.txn, caught.value.error.code) == (1, "08P01")
    assert dest.staged == 0
