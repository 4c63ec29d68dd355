"""A copy that fails for a reason of the table, under ``on_error: suspend``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from catalog.errcodes import ConnectionFailure, NumericValueOutOfRange, ReplicationError
from catalog.pg_subscription import SyncSlot
from catalog.recopy import mark_for_recopy
from config.guc import Settings
from tests.workers.subscribed import Subscribed
from tests.workers.synchronised import IDENT, Synchronised
from workers.lake.memory.destination import MemoryDestination
from workers.lake.table import MAIN
from workers.process.worker_exit import WorkerExit
from workers.process.worker_process import WorkerProcess
from workers.sync import suspend
from workers.sync.copied_columns import CopyOutdated
from workers.sync.suspend import suspending


@pytest.fixture
def synced(world: Subscribed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Synchronised:
    made = Synchronised(world, tmp_path)
    made.publisher.committed = 3
    made.play(monkeypatch)
    monkeypatch.setattr(suspend, "connect_publisher", lambda *_: made.publisher)
    monkeypatch.setattr(suspend, "drop_sync_slot", made._drop_slot)
    monkeypatch.setattr(suspend, "fetch_size", lambda _conn, _relid: 1 << 20)
    world.declare("a", on_error="suspend")
    return made


def run(synced: Synchronised, **settings: Any) -> None:
    """The next sync worker, as ``table_sync_worker_main`` runs it."""
    store, rel = synced.world.store, synced.rel
    sub = store.subscription(rel.srsubid)
    assert sub is not None
    link = cast("Any", synced.link)
    process = WorkerProcess(
        synced.data_dir, sub.oid, rel.srrelid, 1, store, link, Settings(**settings)
    )
    with suspending(process, sub, rel, MemoryDestination(synced.world.lake)):
        synced.worker()


def fail(error: ReplicationError) -> Any:
    def failing() -> None:
        raise error

    return failing


@pytest.mark.parametrize("slot", SyncSlot)
def test_a_value_that_cannot_be_copied_suspends_the_table(
    synced: Synchronised, slot: SyncSlot
) -> None:
    """Nothing of the copy stays: no branch, and no slot that holds back WAL."""
    store = synced.world.store
    store.update_subscription(synced.world.sub.oid, sync_slot=slot)
    synced.at_place["tablesync.range_copied"] = fail(NumericValueOutOfRange("too large"))
    with pytest.raises(WorkerExit, match="suspended"):
        run(synced)
    rel = synced.rel
    assert (rel.srsubstate, rel.suspended, rel.awaits_sync) == ("d", True, False)
    assert (rel.suspend_sqlstate, rel.suspend_error) == ("22003", "too large")
    assert rel.suspend_lsn is None
    assert set(synced.world.lake.tables[IDENT].refs) == {MAIN}
    assert (synced.publisher.slots, store.leaked_slots()) == ({}, [])
    stats = store.subscription_stats(synced.world.sub.oid)
    assert (stats.sync_error_count, stats.suspension_count) == (1, 1)
    store.update_rel(rel.srsubid, rel.srrelid, resuming=True, recopy=True)
    run(synced)
    assert (synced.rel.srsubstate, synced.rel.suspended, synced.rel.resuming) == ("s", False, False)
    assert synced.rel.suspend_error is None
    assert synced.rows() == synced.published(3)


def test_a_slot_that_cannot_be_dropped_is_listed(
    synced: Synchronised, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ConnectionFailure("gone")

    monkeypatch.setattr(suspend, "connect_publisher", refuse)
    synced.at_place["tablesync.range_copied"] = fail(NumericValueOutOfRange("too large"))
    with pytest.raises(WorkerExit):
        run(synced)
    (left,) = synced.world.store.leaked_slots()
    assert (left.slot_name, left.reason) == (synced.slot, "its table is suspended")
    assert synced.origin is not None, "the record of the slot"


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ("tablesync.range_copied", ConnectionFailure("lost")),
        ("tablesync.slot_created", NumericValueOutOfRange("of no table")),
    ],
)
def test_an_error_that_is_not_of_the_table_is_tried_again(
    synced: Synchronised, place: str, error: ReplicationError
) -> None:
    synced.at_place[place] = fail(error)
    with pytest.raises(type(error)):
        run(synced)
    assert not synced.rel.suspended
    assert set(synced.world.lake.tables[IDENT].refs) == {MAIN}


def test_a_copy_that_fails_under_stop_leaves_neither_branch_nor_snapshot(
    synced: Synchronised,
) -> None:
    """The next attempt may be minutes away, or never come."""
    synced.world.declare("a", on_error="stop")
    table = synced.world.lake.tables[IDENT]
    before = set(table.snapshots)
    found: list[set[str]] = []

    def failing() -> None:
        found.append(set(table.refs))
        raise NumericValueOutOfRange("too large")

    synced.at_place["tablesync.copied"] = failing
    with pytest.raises(NumericValueOutOfRange):
        run(synced)
    assert len(found[0]) == 2, "the copy was on a branch"
    assert set(table.refs) == {MAIN}
    assert set(table.snapshots) == before | {table.refs[MAIN]}, "and the fence"


def test_a_copy_that_a_command_began_anew_is_not_suspended(synced: Synchronised) -> None:
    def anew() -> None:
        synced.world.store.update_rel(synced.rel.srsubid, synced.rel.srrelid, epoch="another")
        raise NumericValueOutOfRange("too large")

    synced.at_place["tablesync.range_copied"] = anew
    with pytest.raises(WorkerExit, match="copied anew"):
        run(synced)
    assert not synced.rel.suspended


@pytest.mark.parametrize("slot", SyncSlot)
def test_a_copy_with_the_columns_of_before_is_made_again(
    synced: Synchronised, slot: SyncSlot
) -> None:
    """In f the copy is on main: the next one replaces it."""
    synced.world.store.update_subscription(synced.world.sub.oid, sync_slot=slot)
    synced.world.store.update_rel(synced.rel.srsubid, synced.rel.srrelid, remote_relid=1)
    synced.at_place["tablesync.waiting"] = fail(CopyOutdated("other columns"))
    with pytest.raises(WorkerExit, match="copied again"):
        run(synced)
    assert not synced.rel.suspended
    assert synced.rel.recopy == (slot is SyncSlot.PERMANENT)
    run(synced)
    assert synced.copies == 2
    assert synced.rel.srsubstate == "s"
    assert synced.rows() == synced.published(4)


@pytest.mark.parametrize("slot", SyncSlot)
def test_a_large_copy_with_the_columns_of_before_is_not_made_again_by_itself(
    synced: Synchronised, slot: SyncSlot
) -> None:
    """Whatever ``on_error`` says: nobody asked for the second copy."""
    store = synced.world.store
    store.update_subscription(synced.world.sub.oid, sync_slot=slot)
    synced.world.declare("a", on_error="stop")
    store.update_rel(synced.rel.srsubid, synced.rel.srrelid, remote_relid=1)
    synced.at_place["tablesync.waiting"] = outdated(synced)
    with pytest.raises(WorkerExit, match="suspended"):
        run(synced, auto_recopy_max_bytes="512kB")
    assert synced.rel.awaits_resume
    assert "too large to be copied again" in (synced.rel.suspend_error or "")
    assert (synced.publisher.slots, store.leaked_slots()) == ({}, [])
    mark_for_recopy(synced.world.sub, [synced.rel], store)
    run(synced, auto_recopy_max_bytes="512kB")
    assert (synced.rel.srsubstate, synced.copies) == ("s", 2)
    assert synced.rows() == synced.published(4)


def outdated(synced: Synchronised) -> Any:
    """The columns changed during the catch-up."""

    def failing() -> None:
        error = CopyOutdated("other columns")
        error.tables = (synced.rel,)
        raise error

    return failing


def test_a_finished_copy_beside_rows_of_others_is_not_replaced(synced: Synchronised) -> None:
    store = synced.world.store
    store.update_subscription(synced.world.sub.oid, sync_slot=SyncSlot.PERMANENT)
    synced.world.declare("a", adopt=True)
    synced.at_place["tablesync.waiting"] = fail(CopyOutdated("other columns"))
    with pytest.raises(CopyOutdated):
        run(synced)
    assert synced.rel.srsubstate == "f"
