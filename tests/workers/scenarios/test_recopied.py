"""One apply worker before, while and after another process copies one of its tables again."""

from __future__ import annotations

import threading

from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription_rel import Setter, SubRelState, SubscriptionRel
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, relation, row
from workers.lake.memory.destination import MemoryDestination
from workers.lake.table import MAIN, LakeIdent, Stamp
from workers.proto.messages import Insert, Message

A = relation(1, "a", "id", "v")
B = relation(2, "b", "id", "v")
IDENT = LakeIdent("public", "a")


def both(key: int) -> list[Message]:
    return [A, B, Insert(1, row(str(key), "0")), Insert(2, row(str(key), "0"))]


def mark(world: Subscribed) -> SubscriptionRel:
    """What the command stores."""
    rel = world.rel("a")
    key = rel.srsubid, rel.srrelid
    world.store.set_rel_state(*key, SubRelState.INIT, None, Setter.SUBSCRIPTIONCMDS)
    return world.store.update_rel(
        *key, recopy=True, epoch="marked", lake_lsn=InvalidXLogRecPtr, copied=False
    )


def copy_again(world: Subscribed, s_lsn: LSN, *keys: int) -> None:
    """What a sync worker leaves: these rows, in s at that position, under a new epoch."""
    rel = world.rel("a")
    key = rel.srsubid, rel.srrelid
    world.store.set_rel_state(*key, SubRelState.DATASYNC, None, Setter.TABLESYNC)
    dest = MemoryDestination(world.lake)
    dest.fence(IDENT)
    dest.drop_branches(IDENT)
    table = world.lake.tables[IDENT]
    stamp = Stamp(origin_name(rel.srsubid), s_lsn, "anew", s_lsn)
    world.lake.commit(table, MAIN, [{"id": each, "v": 1} for each in keys], stamp)
    world.store.set_rel_state(*key, SubRelState.SYNCDONE, s_lsn, Setter.TABLESYNC)
    world.store.update_rel(
        *key, epoch="anew", lake_lsn=s_lsn, floor=s_lsn, copied=True, recopy=False
    )


def test_nothing_is_lost_or_doubled_around_a_copy_in_the_place_of_another(
    world: Subscribed,
) -> None:
    worker = world.worker()
    worker.apply_batch(batch(both(1)))  # 100
    mark(world)
    worker.read_rels()
    worker.apply_batch(batch(both(2), after=100))  # 200: the copy has it
    assert world.rows("a") == [(1, 0)]
    copy_again(world, LSN(250), 1, 2)
    worker.read_rels()
    # Its commit record starts before 250: the copy's. The next one is the apply worker's.
    worker.apply_batch(batch(both(3), after=150))
    worker.apply_batch(batch(both(4), after=250))
    assert world.rows("a") == [(1, 1), (2, 1), (4, 0)]
    assert [key for key, _ in world.rows("b")] == [1, 2, 3, 4]
    # A successor is sent everything again.
    world.worker().apply_batch(batch(both(1), both(2), both(3)))
    assert world.rows("a") == [(1, 1), (2, 1), (4, 0)]


def test_a_batch_in_hand_when_its_table_is_set_back_is_shown_with_the_old_rows(
    world: Subscribed,
) -> None:
    """The command waits for the end of the batch; the copy begins after it, from its result."""

    once = threading.Lock()

    def mark_once(operation: str) -> None:
        if operation == "publish" and once.acquire(blocking=False):
            mark(world)

    dest = MemoryDestination(world.lake, failpoint=mark_once)
    worker = world.worker(dest)
    worker.apply_batch(batch(both(1)))
    assert (world.rows("a"), world.rows("b")) == ([(1, 0)], [(1, 0)])
    rel = world.rel("a")
    assert (rel.srsubstate, rel.epoch, rel.recopy) == ("i", "marked", True)
    assert world.store.in_flight(world.sub.oid) == []
    worker.read_rels()
    worker.apply_batch(batch(both(2), after=100))
    assert (world.rows("a"), len(world.rows("b"))) == ([(1, 0)], 2)
