"""The writer of a table in ``f``: batches carry the table's origin, the last the subscription's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription_rel import Setter, SubRelState, SubscriptionRel
from tests.workers.subscribed import Subscribed
from workers.lake.memory.destination import MemoryDestination
from workers.lake.table import LakeIdent, Stamp
from workers.process.worker_exit import WorkerExit
from workers.sync.table_writer import SyncWriter

IDENT = LakeIdent("public", "a")
MAIN_ORIGIN, TABLE_ORIGIN = "pg_16384", "pg_16384_16385"


class Contended(MemoryDestination):
    """``main`` is moved before the next fast-forward, if asked for; the rows stay."""

    world: Subscribed
    moved = True
    fast_forwards = 0

    def publish(self, ident: LakeIdent, branch: str, stamp: Stamp) -> int | None:
        self.fast_forwards += 1
        if not self.moved:
            self.moved = True
            self.world.put("a", ours=True)
        return super().publish(ident, branch, stamp)


@pytest.fixture
def dest(world: Subscribed) -> Contended:
    made = Contended(world.lake)
    made.world = world
    return made


@pytest.fixture
def writer(world: Subscribed, dest: Contended, tmp_path: Path) -> Iterator[SyncWriter]:
    """The writer of table a, which is in ``f``; its tables are open."""
    rel = world.rel("a")
    world.store.delete_rel(rel.srsubid, rel.srrelid)
    world.store.insert_rel(replace(rel, srsubstate=SubRelState.INIT, srsublsn=None))
    for state in (SubRelState.DATASYNC, SubRelState.FINISHEDCOPY):
        world.store.set_rel_state(rel.srsubid, rel.srrelid, state, None, Setter.TABLESYNC)
    world.store.origin_create(origin_name(rel.srsubid, rel.srrelid))
    made = SyncWriter(dest, world.store, world.sub, rel.srrelid, generation=1, data_dir=tmp_path)
    made.open(world.rel("a"))
    yield made
    made.close()


def publish(writer: SyncWriter, rel: SubscriptionRel, end_lsn: int) -> None:
    """Publish a batch without rows."""
    writer.publish(writer.write({rel.srrelid: []}, LSN(end_lsn)), LSN(end_lsn))


def position(world: Subscribed) -> tuple[str, int]:
    """Origin and LSN that readers see."""
    lake = MemoryDestination(world.lake).table(IDENT)
    assert lake is not None
    assert lake.stamp is not None
    return lake.stamp.origin, lake.stamp.lsn


def test_a_batch_moves_the_origin_of_the_table_and_no_other(
    world: Subscribed, writer: SyncWriter
) -> None:
    rel = world.rel("a")
    assert origin_name(rel.srsubid, rel.srrelid) == TABLE_ORIGIN
    publish(writer, rel, 700)
    assert position(world) == (TABLE_ORIGIN, 700)
    assert world.store.origin_lsn(TABLE_ORIGIN) == 700
    assert world.store.origin_lsn(MAIN_ORIGIN) == InvalidXLogRecPtr
    assert world.rel("a").lake_lsn == 700


def test_a_batch_is_not_listed_as_in_flight(
    world: Subscribed, writer: SyncWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list is the apply worker's, and this would overwrite or clear it."""
    listed: list[object] = []
    monkeypatch.setattr(
        world.store, "put_in_flight", lambda *words: listed.append(words), raising=True
    )
    publish(writer, world.rel("a"), 700)
    assert listed == []


def test_a_batch_of_a_copy_that_is_to_be_made_anew_is_not_visible(
    world: Subscribed, writer: SyncWriter
) -> None:
    rel, before = world.rel("a"), position(world)
    world.store.update_rel(rel.srsubid, rel.srrelid, epoch="another")
    with pytest.raises(WorkerExit):
        publish(writer, rel, 700)
    assert position(world) == before
    assert world.store.origin_lsn(TABLE_ORIGIN) == InvalidXLogRecPtr


def test_the_last_commit_has_the_origin_of_the_subscription(
    world: Subscribed, writer: SyncWriter
) -> None:
    publish(writer, world.rel("a"), 700)
    stored: list[LSN] = []
    writer.finish(
        world.rel("a"), LSN(800), lambda: stored.append(world.store.origin_lsn(TABLE_ORIGIN))
    )
    assert position(world) == (MAIN_ORIGIN, 800)
    assert stored == [LSN(800)], "the origin is stored before what else the transaction stores"


def test_what_is_stored_with_the_last_commit_is_stored_with_it_or_not_at_all(
    world: Subscribed, writer: SyncWriter
) -> None:
    def fail() -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        writer.finish(world.rel("a"), LSN(800), fail)
    assert world.store.origin_lsn(TABLE_ORIGIN) == InvalidXLogRecPtr
    assert world.rel("a").lake_lsn == InvalidXLogRecPtr


def test_the_last_commit_is_not_taken_for_the_batch_before_at_the_same_lsn(
    world: Subscribed, dest: Contended, writer: SyncWriter
) -> None:
    """A compaction moves main meanwhile: main's LSN is right already, the origin is not."""
    publish(writer, world.rel("a"), 700)
    dest.moved, dest.fast_forwards = False, 0
    writer.finish(world.rel("a"), LSN(700), lambda: None)
    assert position(world) == (MAIN_ORIGIN, 700)
    assert dest.fast_forwards == 2
