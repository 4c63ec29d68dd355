"""A worker died while it published; its successor fences."""

from __future__ import annotations

import pytest

from catalog.errcodes import ConnectionFailure, ReplicationError
from tests.workers.subscribed import Subscribed
from tests.workers.synchronised import Killed, Late
from tests.workers.transactions import batch, relation, row
from workers.lake.memory.destination import MemoryDestination
from workers.lake.memory.lake import ancestors_of
from workers.lake.table import MAIN, LakeIdent
from workers.process import failpoints
from workers.proto.messages import Insert

A, B = relation(1, "a", "id", "v"), relation(2, "b", "id", "v")


@pytest.mark.parametrize("place", ["apply.before_fence", "apply.fenced"])
def test_a_late_fast_forward_is_seen_or_does_not_land(
    world: Subscribed, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Its worker died while it published; the heir fences the table before it reads a position."""
    late = Late(world.lake, at=1)
    changes = batch([A, Insert(1, row("1", "1"))], [A, Insert(1, row("2", "2"))])
    with pytest.raises(Killed):
        world.worker(late).apply_batch(changes)
    assert world.rows("a") == []
    reached: list[str] = []

    def arrive(at: str) -> None:
        reached.append(at)
        if at != place:
            return
        if place == "apply.before_fence":
            late.land()
            return
        with pytest.raises(ReplicationError, match="main was moved") as caught:
            late.land()
        assert caught.value.code == "40001"

    monkeypatch.setattr(failpoints, "reach", arrive)
    heir = world.worker()
    assert reached == ["apply.before_fence", "apply.fenced"]
    assert world.store.in_flight(world.sub.oid) == []
    heir.apply_batch(changes)
    assert world.rows("a") == [(1, 1), (2, 2)]


def _set_back(world: Subscribed, name: str) -> None:
    """Set main of a table back to its creation, as a user may."""
    table = world.lake.tables[LakeIdent("public", name)]
    table.refs[MAIN] = list(ancestors_of(table, MAIN))[-1].snapshot_id


def test_a_table_that_a_dead_worker_published_is_not_set_back_unnoticed(world: Subscribed) -> None:
    """The worker died between the two fast-forwards; the successor skips the first table."""
    published = 0

    def die(name: str) -> None:
        nonlocal published
        published += name == "publish"
        if published == 2:
            raise ConnectionFailure("lost the lake server")

    changes = batch([A, B, Insert(1, row("1", "1")), Insert(2, row("1", "1"))])
    with pytest.raises(ConnectionFailure):
        world.worker(MemoryDestination(world.lake, failpoint=die)).apply_batch(changes)
    world.worker().apply_batch(changes)
    assert [world.rel(name).lake_lsn for name in ("a", "b")] == [100, 100]
    for name in ("a", "b"):
        _set_back(world, name)
        later = batch([A, B, Insert(1 if name == "a" else 2, row("2", "2"))], after=100)
        worker = world.worker()
        with pytest.raises(ReplicationError, match="is behind what was published") as caught:
            worker.apply_batch(later)
        assert caught.value.code == "55000"
