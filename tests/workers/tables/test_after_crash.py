"""A worker died while it published; its successor fences."""

from __future__ import annotations

import pytest

from catalog.errcodes import ReplicationError
from tests.workers.subscribed import Subscribed
from tests.workers.synchronised import Killed, Late
from tests.workers.transactions import batch, relation, row
from workers.process import failpoints
from workers.proto.messages import Insert

A = relation(1, "a", "id", "v")


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
