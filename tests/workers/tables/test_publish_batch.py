"""A batch is published: main that moved at the last moment, and the commit the origin names."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, relation, row
from workers.lake.memory.destination import MemoryDestination
from workers.lake.table import MAIN, Identity, LakeIdent, Stamp
from workers.proto.messages import Delete, Insert, Update

A = relation(1, "a", "id", "v")


B = relation(2, "b", "id", "v")
A_TABLE = LakeIdent("public", "a")


def missing(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Kind and count of each line about rows that were not found."""
    lines = [record.getMessage() for record in caplog.records]
    found = [line.split() for line in lines if line.startswith("action=conflict")]
    return [
        " ".join(word for word in words if word.startswith(("count=", "conflict=")))
        for words in found
    ]


def test_what_somebody_took_away_at_the_last_moment_was_not_found(
    world: Subscribed, caplog: pytest.LogCaptureFixture
) -> None:
    """``main`` has moved, so the batch is written again; what it finds then counts."""
    caplog.set_level(logging.INFO, "workers")
    world.put("a", (1, 1), (2, 2), (3, 3))
    world.put("b", (1, 1))

    class Overtaken(MemoryDestination):
        refused = 0

        def publish(self, ident: LakeIdent, branch: str, stamp: Stamp) -> int | None:
            if ident.table == "a" and not self.refused:
                self.refused += 1
                world.put("a", (2, 2))
            return super().publish(ident, branch, stamp)

    world.worker(Overtaken(world.lake)).apply_batch(
        batch(
            [A, Delete(1, "K", row("1", "")), Update(1, None, None, row("3", "5"))],
            [B, Delete(2, "K", row("1", ""))],
        )
    )
    assert missing(caplog) == [
        "count=1 conflict=update_missing",
        "count=1 conflict=delete_missing",
    ]
    stats = world.store.subscription_stats(world.sub.oid)
    assert (stats.confl_update_missing, stats.confl_delete_missing) == (1, 1)
    assert (world.rows("a"), world.rows("b")) == ([(2, 2)], [])


@pytest.mark.parametrize("when", ["publish", "create_branch"])
def test_what_a_second_worker_published_meanwhile_is_not_applied_twice(
    world: Subscribed, when: str
) -> None:
    """Both chose the transactions when the table stood before them."""
    done: list[str] = []

    def overtake(operation: str) -> None:
        if operation == when and not done:
            done.append(operation)
            table = MemoryDestination(world.lake).table(A_TABLE)
            assert table is not None
            assert table.stamp is not None
            first = replace(table.stamp, lsn=LSN(100))
            world.lake.commit(world.lake.tables[A_TABLE], MAIN, [{"id": 1, "v": 1}], first)

    dest = MemoryDestination(world.lake, identity=Identity(1), failpoint=overtake)
    received = batch([A, Insert(1, row("1", "1"))], [Insert(1, row("2", "2"))])
    with pytest.raises(ReplicationError, match="another worker of this subscription") as caught:
        world.worker(dest).apply_batch(received)
    assert caught.value.code == "40001"
    assert world.rows("a") == [(1, 1)]
    world.worker().apply_batch(received)
    assert world.rows("a") == [(1, 1), (2, 2)]


def test_a_second_row_that_came_at_the_last_moment_is_not_published(world: Subscribed) -> None:
    """``main`` has moved, so the batch is written again, and matches two rows for one change."""
    world.put("a", (1, 1), (2, 2))

    class Overtaken(MemoryDestination):
        refused = 0

        def publish(self, ident: LakeIdent, branch: str, stamp: Stamp) -> int | None:
            if not self.refused:
                self.refused += 1
                world.put("a", (1, 1), (1, 9), (2, 2))
            return super().publish(ident, branch, stamp)

    dest = Overtaken(world.lake)
    with pytest.raises(ReplicationError, match=r"key \(id\) is not unique"):
        world.worker(dest).apply_batch(batch([A, Update(1, None, None, row("1", "5"))]))
    assert dest.refused == 1
    assert world.rows("a") == [(1, 1), (1, 9), (2, 2)]
    assert world.position() == 0
    assert dest.staged == 0


def test_the_origin_names_the_commit_that_completed_it(world: Subscribed) -> None:
    world.worker().apply_batch(batch([A, B, Insert(1, row("1", "1")), Insert(2, row("1", "1"))]))
    (origin,) = world.store.origins()
    shown = [MemoryDestination(world.lake).table(LakeIdent("public", name)) for name in ("a", "b")]
    commits = [f"snapshot {table.snapshot_id} of {table.ident}" for table in shown if table]
    assert origin.remote_lsn == 100
    assert origin.local_lsn in commits


def test_a_commit_whose_outcome_had_to_be_read_is_named_by_its_position(
    world: Subscribed,
) -> None:
    class Silent(MemoryDestination):
        def publish(self, ident: LakeIdent, branch: str, stamp: Stamp) -> int | None:
            super().publish(ident, branch, stamp)
            return None

    world.worker(Silent(world.lake)).apply_batch(batch([A, Insert(1, row("1", "1"))]))
    (origin,) = world.store.origins()
    assert origin.local_lsn == "LSN 0/64 of public.a"
