"""The CONTEXT of an error: the change and the transaction that the error belongs to."""

from __future__ import annotations

import pytest

from catalog.errcodes import ReplicationError
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, relation, row
from workers.proto.messages import Delete, Insert, Message, Update

A = relation(1, "a", "id", "v")
B = relation(2, "b", "id", "v")
TOO_LARGE = "99999999999"


def both(key: int) -> list[Message]:
    """A transaction that inserts a row into both tables."""
    return [A, B, Insert(1, row(str(key), "0")), Insert(2, row(str(key), "0"))]


def test_an_error_says_which_change_it_is_about(world: Subscribed) -> None:
    transactions = [both(0), [*both(1), Update(2, None, None, row("0", TOO_LARGE))]]
    with pytest.raises(ReplicationError) as caught:
        world.worker().apply_batch(batch(*transactions))
    assert caught.value.context == [
        'processing remote data for replication origin "pg_16384" during message type "UPDATE" '
        'for replication target relation "public.b" column "v" in transaction 2, finished at 0/C7'
    ]
    assert TOO_LARGE not in caught.value.report()


def test_an_error_of_the_table_s_identity_names_no_column(world: Subscribed) -> None:
    keyless = relation(3, "a", "id", "v", key="", identity="n")
    with pytest.raises(ReplicationError) as caught:
        world.worker().apply_batch(batch([keyless, Delete(3, "K", row("1", "0"))]))
    assert caught.value.context == [
        'processing remote data for replication origin "pg_16384" during message type "DELETE" '
        'for replication target relation "public.a" in transaction 1, finished at 0/63'
    ]
