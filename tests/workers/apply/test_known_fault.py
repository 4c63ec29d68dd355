"""The transaction that ended a worker is tried alone by the next, and nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.errcodes import IoError, ReplicationError
from catalog.pg_lsn import LSN
from catalog.transaction_at_fault import TransactionAtFault
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, relation, row
from workers.lake.effects import Effect
from workers.lake.memory.destination import MemoryDestination
from workers.lake.table import LakeIdent
from workers.proto.messages import Insert, Message

A = relation(1, "a", "id", "v")
TRANSACTIONS = 64
FINISH = LSN(599)


POISON = 5
"""The key of the row that the lake refuses."""


class Refusing(MemoryDestination):
    """Refuses a commit with a certain row, without a word about the transaction; counts commits."""

    writes = 0
    poison: int | None = POISON

    def write_sources(self, ident: LakeIdent, branch: str, parts: Any, **more: Any) -> list[Effect]:
        self.writes += 1
        done = super().write_sources(ident, branch, parts, **more)
        if any(found["id"] == self.poison for found in self.lake.rows(ident, branch)):
            raise ReplicationError("out of range", sqlstate="22003")
        return done


def inserts(first: int = 0, last: int = TRANSACTIONS) -> list[list[Message]]:
    return [[A, Insert(1, row(str(key), "0"))] for key in range(first, last)]


def fails(world: Subscribed, *, before: int = 0) -> int:
    """A life of the worker on what the slot sends again; the number of writes."""
    dest = Refusing(world.lake)
    with pytest.raises(ReplicationError, match="out of range") as caught:
        world.worker(dest).apply_batch(batch(*inserts(before), after=100 * before))
    assert "finished at 0/257" in caught.value.context[0]
    return dest.writes


def test_the_next_worker_writes_once(world: Subscribed) -> None:
    assert fails(world) > 6
    fault = world.store.transaction_at_fault(world.sub.oid)
    assert fault == TransactionAtFault(world.sub.oid, FINISH, "22003")
    assert [fails(world, before=POISON) for _ in range(3)] == [1, 1, 1]
    assert world.position() == 100 * POISON
    dest = Refusing(world.lake)
    dest.poison = None
    world.worker(dest).apply_batch(batch(*inserts(POISON), after=100 * POISON))
    assert dest.writes == 2, "the transaction, and all behind it together"
    assert [key for key, _ in world.rows("a")] == list(range(TRANSACTIONS))
    assert world.store.transaction_at_fault(world.sub.oid) is None


def test_the_table_is_stored_where_the_error_names_it(world: Subscribed) -> None:
    bad: list[Message] = [A, Insert(1, row("7", "99999999999"))]
    with pytest.raises(ReplicationError):
        world.worker().apply_batch(batch(*inserts(0, 2), bad))
    fault = world.store.transaction_at_fault(world.sub.oid)
    assert fault == TransactionAtFault(world.sub.oid, LSN(299), "22003", "public", "a")


@pytest.mark.parametrize("finish", [1, 99, 101, 599, 6399, 10**9])
def test_a_wrong_one_changes_nothing_that_is_applied(world: Subscribed, finish: int) -> None:
    world.store.put_transaction_at_fault(TransactionAtFault(world.sub.oid, LSN(finish), "XX000"))
    world.worker().apply_batch(batch(*inserts()))
    assert [key for key, _ in world.rows("a")] == list(range(TRANSACTIONS))
    assert world.position() == 100 * TRANSACTIONS
    left = world.store.transaction_at_fault(world.sub.oid)
    assert (left is None) == (finish < 100 * TRANSACTIONS)


def test_a_skipped_transaction_is_forgotten(world: Subscribed) -> None:
    fails(world)
    world.sub = world.store.update_subscription(world.sub.oid, subskiplsn=FINISH)
    world.store.put_transaction_at_fault(TransactionAtFault(world.sub.oid, FINISH, "22003"))
    world.worker(Refusing(world.lake)).apply_batch(batch(*inserts(POISON), after=100 * POISON))
    assert world.store.transaction_at_fault(world.sub.oid) is None
    assert world.position() == 100 * TRANSACTIONS


def test_a_full_disk_changes_no_error(world: Subscribed, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_fault: TransactionAtFault) -> None:
        raise IoError("no space left", sqlstate="53100")

    monkeypatch.setattr(world.store, "put_transaction_at_fault", full)
    assert fails(world) > 6
