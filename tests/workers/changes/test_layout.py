"""Which columns of a relation find a row, and which declared keys are further keys."""

from __future__ import annotations

import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_stat_subscription_stats import ConflictType
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, relation, row
from workers.changes.key_conflict import KeyConflict
from workers.proto.messages import Delete, Insert, Message, Update

A = relation(1, "a", "id", "v")


@pytest.mark.parametrize(
    "change", [Update(3, None, None, row("1", "2")), Delete(3, "K", row("1", "0"))]
)
def test_a_change_of_a_table_without_identity_stops_with_the_remedy(
    world: Subscribed, change: Message
) -> None:
    keyless = relation(3, "a", "id", "v", key="", identity="n")
    with pytest.raises(ReplicationError) as caught:
        world.worker().apply_batch(batch([keyless, change]))
    assert caught.value.code == "55000"
    assert "has neither REPLICA IDENTITY index nor PRIMARY KEY" in caught.value.primary
    assert "REPLICA IDENTITY FULL" in (caught.value.hint or "")
    assert world.rows("a") == []


def test_the_identity_is_no_second_key(world: Subscribed) -> None:
    world.declare("a", keys=(("id",),))
    world.put("a", (1, 10), (2, 20))
    with pytest.raises(KeyConflict) as caught:
        world.worker().apply_batch(batch([A, Insert(1, row("1", "30"))]))
    assert caught.value.conflict is ConflictType.INSERT_EXISTS
