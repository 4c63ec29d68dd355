"""The transaction that ended a worker is forgotten when its cause may be gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from catalog.pg_lsn import LSN
from catalog.pg_subscription import TableOptions
from catalog.pg_subscription_rel import Setter, SubRelState
from catalog.store_sqlite import CatalogStore
from catalog.transaction_at_fault import TransactionAtFault
from tests.subscriber.status.subscribed import subscribed


@pytest.fixture
def store() -> Iterator[CatalogStore]:
    with closing(CatalogStore.open(":memory:")) as opened:
        yield opened


def fault_of(subid: int) -> TransactionAtFault:
    return TransactionAtFault(subid, LSN(0xABC), "23505", "public", "a")


def test_it_is_kept_until_it_is_forgotten(store: CatalogStore) -> None:
    sub, _ = subscribed(store)
    assert store.transaction_at_fault(sub.oid) is None
    store.put_transaction_at_fault(fault_of(sub.oid))
    assert store.transaction_at_fault(sub.oid) == fault_of(sub.oid)
    other = TransactionAtFault(sub.oid, LSN(0xABD), "22003")
    store.put_transaction_at_fault(other)
    assert store.transaction_at_fault(sub.oid) == other
    store.forget_transaction_at_fault(sub.oid)
    assert store.transaction_at_fault(sub.oid) is None
    store.put_transaction_at_fault(fault_of(sub.oid + 1))
    assert store.transaction_at_fault(sub.oid + 1) is None, "of a subscription that is gone"


Change = Callable[[CatalogStore, int, int], Any]

CHANGES: dict[str, Change] = {
    "a table's options": lambda store, subid, _: store.update_subscription(
        subid, tables={"public.a": TableOptions(on_key_conflict="update")}
    ),
    "a skip": lambda store, subid, _: store.update_subscription(subid, subskiplsn=LSN(0xABC)),
    "a table that leaves": lambda store, subid, relid: store.delete_rel(subid, relid),
    "another setting": lambda store, *_: store.put_settings({"settings": {"autovacuum": "off"}}),
    "the end of the subscription": lambda store, subid, _: store.delete_subscription(subid),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_forgets_it(store: CatalogStore, change: Change) -> None:
    sub, rel = subscribed(store)
    store.put_transaction_at_fault(fault_of(sub.oid))
    change(store, sub.oid, rel.srrelid)
    assert store.transaction_at_fault(sub.oid) is None


KEEPING: dict[str, Change] = {
    "a confirmed position": lambda store, subid, _: store.update_subscription(
        subid, max_flush_lsn=LSN(9)
    ),
    "off and on": lambda store, subid, _: store.update_subscription(subid, subenabled=False),
    "equal settings": lambda store, *_: store.put_settings({}),
    "a worker's own move": lambda store, subid, relid: store.set_rel_state(
        subid, relid, SubRelState.DATASYNC, None, Setter.TABLESYNC
    ),
}


@pytest.mark.parametrize("change", KEEPING.values(), ids=KEEPING)
def test_what_cannot_mend_it_forgets_nothing(store: CatalogStore, change: Change) -> None:
    sub, rel = subscribed(store)
    store.put_transaction_at_fault(fault_of(sub.oid))
    change(store, sub.oid, rel.srrelid)
    assert store.transaction_at_fault(sub.oid) == fault_of(sub.oid)
