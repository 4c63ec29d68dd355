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


def test_columns_have_their_lake_names_and_errors_the_publisher_s(world: Subscribed) -> None:
    world.declare("a", columns=(("ID", "id"), ("V", "v")), keys=(("V",),))
    world.put("a", (1, 10), (2, 20))
    mapped, world.identity = relation(1, "a", "ID", "V", key="ID"), {"ID": True}
    changes: list[Message] = [
        Insert(1, row("3", "30")),
        Update(1, "K", row("1", ""), row("4", "40")),
        Delete(1, "K", row("2", "")),
    ]
    world.worker().apply_batch(batch([mapped, *changes]))
    assert world.rows("a") == [(3, 30), (4, 40)]
    with pytest.raises(ReplicationError) as caught:
        world.worker().apply_batch(batch([mapped, Insert(1, row("5", "99999999999"))], after=500))
    assert caught.value.primary.startswith('column "v" of lake table "public.a"')
    assert 'relation "public.a" column "V" in transaction' in caught.value.context[0]


def test_a_column_that_joins_under_a_mapped_name_stops_with_the_remedy(world: Subscribed) -> None:
    world.declare("a", columns=(("V", "v"),))
    with pytest.raises(ReplicationError, match='"V", "v" are mapped to one column') as caught:
        world.worker().apply_batch(batch([relation(1, "a", "id", "V", "v"), Insert(1, row("1"))]))
    assert caught.value.code == "42701"
    assert world.rows("a") == []
