"""The masks of a table are remembered with the first batch, whatever is known of its columns."""

from __future__ import annotations

import pytest

from catalog.pg_subscription import TableOptions
from tests.workers.changes.test_guarded_runs import run_of
from tests.workers.subscribed import EPOCH, Subscribed
from tests.workers.transactions import relation
from workers.changes.failed_transaction import FailedTransaction
from workers.changes.remembered_columns import RememberedColumns
from workers.lake.memory.destination import MemoryDestination
from workers.lake.table import LakeIdent
from workers.tables.known_columns import known_columns

SHA256 = TableOptions(masks=(("v", "sha256", ""),))


def known(world: Subscribed, options: TableOptions) -> RememberedColumns | None:
    lake = MemoryDestination(world.lake).table(LakeIdent("public", "a"))
    assert lake is not None
    run = run_of(relation(1, "a", "id", "v"))
    return known_columns(world.store, lake, world.rel("a"), run, options)


def test_masks_are_remembered_at_once(world: Subscribed) -> None:
    assert known(world, SHA256) is None
    found = known(world, SHA256)
    assert found is not None
    assert (found.epoch, found.is_forgotten, found.masked) == (EPOCH, True, {"v": "sha256"})
    with pytest.raises(FailedTransaction) as caught:
        known(world, TableOptions())
    assert caught.value.error.code == "55000"


def test_nothing_is_stored_of_a_table_without_masks(world: Subscribed) -> None:
    assert known(world, TableOptions(excluded=("v",))) is None
    assert world.store.columns(world.sub.oid, world.rel("a").srrelid) is None
