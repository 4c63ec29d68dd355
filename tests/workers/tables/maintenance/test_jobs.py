"""What a job of maintenance did or why it failed is recorded; no batch fails with a job."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from catalog.errcodes import (
    ConnectionFailure,
    IoError,
    LakeBroken,
    ReplicationError,
    RequiredProcessGone,
)
from catalog.lake_maintenance import AUTOVACUUM, COMPACTION, EXPIRY, LakeUpkeep
from tests.workers.maintained import Expiring, recorded
from tests.workers.subscribed import Subscribed
from workers.tables.maintenance.jobs import Outcomes


def test_what_is_done_is_counted(world: Subscribed) -> None:
    """In the worker's store, by each worker of the table."""
    of = (world.sub.oid, world.rel("a").srrelid)
    for life in range(2):
        worker = Expiring(world, *range(10), snapshot_expiry_batches=12, snapshot_retain_last=1)
        worker.clock.now += 1000 * life
        worker.worker.writer.maintenance._last_vacuum -= 60
        worker.dest.rows = (1_200_000, 400_000)
        worker.play(12)
    assert recorded(world) == {
        COMPACTION: LakeUpkeep(*of, COMPACTION, 2, 1_110_000_000),
        AUTOVACUUM: LakeUpkeep(*of, AUTOVACUUM, 2, 1_101_000_000),
        EXPIRY: LakeUpkeep(*of, EXPIRY, 2, 1_110_000_000),
    }


def test_a_batch_without_upkeep_stores_nothing_of_it(world: Subscribed) -> None:
    written: list[str] = []

    def trace(statement: str) -> None:
        if "lake_upkeep" in statement:
            written.append(statement.split()[0])

    worker = Expiring(world)
    world.store._connection.set_trace_callback(trace)
    worker.play(25)
    world.store._connection.set_trace_callback(None)
    assert worker.dest.compacted == [10, 20]
    assert written == ["INSERT", "INSERT"]


def test_what_fails_is_told_without_its_detail_until_it_goes_well(
    world: Subscribed, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has that."""
    worker = Expiring(world, *range(10), snapshot_expiry_batches=12, snapshot_retain_last=1)
    worker.dest.error = ReplicationError("the lake failed", detail="a file")
    of = (world.sub.oid, world.rel("a").srrelid)
    worker.dest.failing = True
    worker.play(10)
    assert recorded(world) == {
        kind: LakeUpkeep(*of, kind, failed=failed, error="the lake failed")
        for kind, failed in ((EXPIRY, 110_000_000), (COMPACTION, 110_000_000))
    }
    assert [getattr(record, "DETAIL", None) for record in caplog.records[-2:]] == ["a file"] * 2
    worker.dest.failing = False
    worker.play(10)
    assert recorded(world)[COMPACTION] == LakeUpkeep(*of, COMPACTION, 1, 120_000_000)
    assert recorded(world)[EXPIRY].error == "the lake failed"  # it has not been tried again
    worker.play(2)
    assert recorded(world)[EXPIRY] == LakeUpkeep(*of, EXPIRY, 1, 122_000_000)


@pytest.mark.parametrize(
    ("error", "told"), [(RequiredProcessGone, False), (ConnectionFailure, True)]
)
def test_a_server_that_went_away_is_no_failure_of_upkeep(
    world: Subscribed, error: type[ReplicationError], told: bool
) -> None:
    worker = Expiring(world)
    worker.dest.failing, worker.dest.error = True, error("lost the lake server")
    worker.play(10)
    assert worker.dest.compacted == [10]
    assert bool(recorded(world)) is told


def test_a_broken_server_ends_the_worker_when_the_others_were_told(world: Subscribed) -> None:
    """Batches may go on without what is broken: nobody would start it again."""
    worker = Expiring(world, *range(10), snapshot_expiry_batches=12, snapshot_retain_last=1)
    worker.play(9)
    worker.dest.failing, worker.dest.error = True, LakeBroken("cannot unpack a library")
    with pytest.raises(LakeBroken):
        worker.play(1)
    assert len(world.rows("a")) == 10
    assert worker.dest.expired == [10]
    assert recorded(world) == {}


@pytest.mark.parametrize("broken", [0, 1])
def test_what_others_did_beside_a_broken_server_is_told(world: Subscribed, broken: int) -> None:
    outcomes = Outcomes(world.store.add_lake_upkeep, time.time)
    rels = [world.rel("a"), world.rel("b")]
    tables: Any = [SimpleNamespace(rel=rel) for rel in rels]
    done: list[int | ReplicationError] = [1, 1]
    done[broken] = LakeBroken("cannot unpack a library")
    with pytest.raises(LakeBroken):
        outcomes.record_all(COMPACTION, tables, done)
    [told] = world.store.lake_upkeep(world.sub.oid)
    assert (told.relid, told.times) == (rels[1 - broken].srrelid, 1)


def test_a_bug_in_upkeep_stops_nobody(world: Subscribed, caplog: pytest.LogCaptureFixture) -> None:
    worker = Expiring(world)
    worker.dest.failing = True
    bug: Any = RuntimeError("of a value")
    worker.dest.error = bug
    worker.play(11)
    assert len(world.rows("a")) == 11
    assert "unexpected RuntimeError at " in (recorded(world)[COMPACTION].error or "")
    assert "of a value" not in caplog.text


@pytest.mark.parametrize("failing", [False, True])
def test_a_batch_goes_on_where_what_was_done_cannot_be_counted(
    world: Subscribed, caplog: pytest.LogCaptureFixture, failing: bool
) -> None:
    worker = Expiring(world)
    worker.dest.failing = failing

    def refuse(_: LakeUpkeep) -> None:
        raise IoError("no space", sqlstate="53100")

    worker.worker.writer.maintenance._outcomes._record = refuse
    worker.play(11)
    assert len(world.rows("a")) == 11
    assert "sqlstate=53100 no space" in caplog.text
    assert recorded(world) == {}
