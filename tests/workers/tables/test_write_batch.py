"""A batch on its branches: what was matched is counted, and a key that is there twice is found."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from catalog.errcodes import ReplicationError
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, relation, row
from workers.lake.effects import Counts, Effect
from workers.lake.memory.destination import MemoryDestination
from workers.proto.messages import Delete, Insert, Message, Update

A = relation(1, "a", "id", "v")


B = relation(2, "b", "id", "v")


def missing(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Kind and count of each line about rows that were not found."""
    lines = [record.getMessage() for record in caplog.records]
    found = [line.split() for line in lines if line.startswith("action=conflict")]
    return [
        " ".join(word for word in words if word.startswith(("count=", "conflict=")))
        for words in found
    ]


@pytest.mark.parametrize(("together", "asked"), [(1, [1, 1]), (10, [2])])
def test_what_was_found_is_asked_for_several_tables_at_a_time(
    world: Subscribed,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    together: int,
    asked: list[int],
) -> None:
    calls: list[int] = []

    class Watched(MemoryDestination):
        def count(self, effects: Sequence[Effect]) -> list[Counts]:
            calls.append(len(effects))
            return super().count(effects)

    monkeypatch.setattr("workers.tables.write_batch.COUNT_AT_ONCE_TABLES", together)
    caplog.set_level(logging.INFO, "workers")
    world.put("a", (1, 1))
    world.worker(Watched(world.lake)).apply_batch(
        batch([A, Update(1, None, None, row("1", "5")), B, Delete(2, "K", row("7", ""))])
    )
    assert calls == asked
    assert missing(caplog) == ["count=1 conflict=delete_missing"]
    told = [record.getMessage() for record in caplog.records]
    assert any('on relation "public.b": conflict=delete_missing' in line for line in told)
    assert world.rows("a") == [(1, 5)]


@pytest.mark.parametrize("together", [1, 10])
@pytest.mark.parametrize("before", [0, 2])
def test_a_key_that_two_rows_turn_out_to_have_is_cut_down_to_its_transaction(
    world: Subscribed, monkeypatch: pytest.MonkeyPatch, together: int, before: int
) -> None:
    """Nobody knew until the MERGE had matched both, when other tables were written as well."""
    monkeypatch.setattr("workers.tables.write_batch.COUNT_AT_ONCE_TABLES", together)
    world.put("a", *((n, 0) for n in range(before)))
    left = [(before, 0), (before, 1), (before + 1, 0)]
    world.put("b", *((n, 0) for n in range(before)), *left)
    dest = MemoryDestination(world.lake)
    transactions: list[list[Message]] = [
        [A, Insert(1, row(str(10 + n), "1")), B, Delete(2, "K", row(str(n), ""))]
        for n in range(before + 2)
    ]
    with pytest.raises(ReplicationError, match=r"key \(id\) is not unique") as caught:
        world.worker(dest).apply_batch(batch(*transactions))
    assert caught.value.code == "23505"
    assert f"in transaction {before + 1}," in caught.value.context[0]
    assert world.position() == 100 * before
    assert world.rows("b") == left
    assert [key for key, _ in world.rows("a") if key >= 10] == [10 + n for n in range(before)]
    assert dest.staged == 0
