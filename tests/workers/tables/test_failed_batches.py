"""A batch that fails again and again costs nothing, in the failing table and in the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from catalog.errcodes import ReplicationError
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, relation, row
from workers.lake.effects import Effect
from workers.lake.memory.destination import MemoryDestination
from workers.lake.segment import SourcePart
from workers.lake.table import LakeIdent
from workers.proto.messages import Delete, Insert, Message, Update

A = relation(1, "a", "id", "v")
B = relation(2, "b", "id", "v")
WIDER = relation(2, "b", "id", "v", "more")
NO_KEY = relation(2, "b", "id", "v", key="")
POISONS: dict[str, tuple[str, list[Message]]] = {
    "a column is missing": ("55000", [WIDER, Insert(2, row("1", "1", "1"))]),
    "a value is too large": ("22003", [B, Insert(2, row("1", "9999999999"))]),
    "a value cannot be read": ("22003", [B, Insert(2, row("1", "x"))]),
    "no key finds the row": ("55000", [NO_KEY, Delete(2, "K", row("1", "1"))]),
    "a declared key is not published": ("42703", [relation(2, "b", "id"), Insert(2, row("1"))]),
    "an inserted key is there": ("23505", [B, Insert(2, row("7", "1"))]),
    "a key has two rows": ("23505", [B, Delete(2, "K", row("8", ""))]),
}
DECIDED_BEFORE = [*POISONS][:5]


def prepare(world: Subscribed, kind: str) -> None:
    if kind == "a declared key is not published":
        world.declare("b", keys=(("v",),))
    world.put("b", (7, 0), (8, 0), (8, 1), ours=True)
    if kind == "an inserted key is there":
        world.distrust("b")


def left(world: Subscribed) -> dict[str, tuple[int, int]]:
    """How many refs and snapshots each table has."""
    tables = world.lake.tables
    return {str(each): (len(tables[each].refs), len(tables[each].snapshots)) for each in tables}


def live(world: Subscribed, transactions: Sequence[Sequence[Message]]) -> str:
    """One worker's life: what the publisher has not confirmed comes, and an error ends it."""
    done = world.position() // 100
    worker = world.worker()
    with pytest.raises(ReplicationError) as caught:
        worker.apply_batch(batch(*transactions[done:], after=done * 100))
    return caught.value.code


@pytest.mark.parametrize("kind", POISONS)
def test_lives_with_the_same_error_leave_all_tables_as_the_first_left_them(
    world: Subscribed, kind: str
) -> None:
    code, poison = POISONS[kind]
    prepare(world, kind)
    others: list[list[Message]] = [[A, Insert(1, row(str(n), "1"))] for n in range(4)]
    transactions = [*others[:2], [*poison, A, Update(1, None, None, row("0", "5"))], *others[2:]]
    assert live(world, transactions) == code
    assert world.rows("a") == [(0, 1), (1, 1)], "what comes before the transaction goes on"
    first = left(world)
    for _ in range(5):
        assert live(world, transactions) == code
    assert left(world) == first
    assert world.rows("a") == [(0, 1), (1, 1)]


@pytest.mark.parametrize("kind", DECIDED_BEFORE)
def test_what_fails_without_the_lake_fails_before_anything_is_written(
    world: Subscribed, kind: str
) -> None:
    code, poison = POISONS[kind]
    prepare(world, kind)
    written: list[LakeIdent] = []

    class Watched(MemoryDestination):
        def write_sources(
            self, ident: LakeIdent, branch: str, parts: Sequence[SourcePart], **more: Any
        ) -> list[Effect]:
            written.append(ident)
            return super().write_sources(ident, branch, parts, **more)

    worker = world.worker(Watched(world.lake))
    with pytest.raises(ReplicationError) as caught:
        worker.apply_batch(batch([A, Insert(1, row("1", "1")), *poison]))
    assert (caught.value.code, written) == (code, [])


def test_a_table_that_comes_later_does_not_hide_an_earlier_transaction_at_fault(
    world: Subscribed,
) -> None:
    """Table a fails in the third transaction, table b in the second: the second is named."""
    worker = world.worker()
    value = row("9", "9999999999")
    later: list[list[Message]] = [[B, Insert(2, value)], [Insert(1, value)]]
    with pytest.raises(ReplicationError) as caught:
        worker.apply_batch(batch([A, Insert(1, row("1", "1"))], *later))
    assert "in transaction 2," in caught.value.context[0]
    assert world.rows("a") == [(1, 1)]
