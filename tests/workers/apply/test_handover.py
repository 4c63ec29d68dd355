"""The gate and the hand-over, both traces, without a process."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from workers.apply.gate import should_apply_changes_for_rel
from workers.apply.handover import (
    Action,
    AnswerCatchup,
    AwaitSyncDone,
    LaunchSync,
    SetReady,
    SyncWorkerState,
    process_syncing_tables_for_apply,
    process_syncing_tables_for_sync,
)


def rel(state: SubRelState, lsn: int | None = None, relid: int = 7) -> SubscriptionRel:
    return SubscriptionRel(
        srsubid=1,
        srrelid=relid,
        srsubstate=state,
        srsublsn=None if lsn is None else LSN(lsn),
        nspname="public",
        relname=f"t{relid}",
        lake_schema="public",
        lake_table=f"t{relid}",
    )


def decide(
    rels: list[SubscriptionRel],
    workers: dict[int, SyncWorkerState] | None = None,
    *,
    gated: int = 0,
    durable: int = 0,
    now: float = 100.0,
    last_start: dict[int, float] | None = None,
    limit: int = 2,
    later: dict[int, float] | None = None,
) -> list[Action]:
    return process_syncing_tables_for_apply(
        rels,
        workers or {},
        decided_lsn=LSN(gated),
        durable=LSN(durable),
        now=now,
        last_start=last_start or {},
        max_sync_workers=limit,
        retry_interval=5.0,
        retry_later=later,
    )


def waiting(relid: int, state: SubRelState, lsn: int) -> dict[int, SyncWorkerState]:
    return {relid: SyncWorkerState(relid, state, LSN(lsn))}


def test_hand_over_with_the_apply_worker_in_front() -> None:
    table = rel(SubRelState.DATASYNC)
    answer = decide([table], waiting(7, SubRelState.SYNCWAIT, 8), gated=10)
    assert answer == [AnswerCatchup(7, LSN(10))]
    assert decide([table], waiting(7, SubRelState.CATCHUP, 10), gated=10) == [AwaitSyncDone(7)]
    assert process_syncing_tables_for_sync(SubRelState.CATCHUP, LSN(10), LSN(9)) is None
    assert process_syncing_tables_for_sync(SubRelState.CATCHUP, LSN(10), LSN(10)) == 10
    synced = rel(SubRelState.SYNCDONE, 10)
    assert should_apply_changes_for_rel(synced, np.array([9, 10])).tolist() == [False, True]
    assert decide([synced], gated=10, durable=10) == [SetReady(7, LSN(10))]


def test_hand_over_with_the_sync_worker_in_front() -> None:
    table = rel(SubRelState.DATASYNC)
    answer = decide([table], waiting(7, SubRelState.SYNCWAIT, 10), gated=8)
    assert answer == [AnswerCatchup(7, LSN(10))]
    assert process_syncing_tables_for_sync(SubRelState.CATCHUP, LSN(10), LSN(10)) == 10
    synced = rel(SubRelState.SYNCDONE, 10)
    # Gated is past s already, durable is not: r would let a spooled transaction through twice.
    assert decide([synced], gated=10, durable=8) == []
    assert decide([synced], gated=10, durable=12) == [SetReady(7, LSN(12))]


def test_an_inherited_catchup_is_waited_for() -> None:
    table = rel(SubRelState.DATASYNC)
    assert decide([table], waiting(7, SubRelState.CATCHUP, 500)) == [AwaitSyncDone(7)]


def test_all_waiting_tables_are_answered_at_one_boundary() -> None:
    tables = [rel(SubRelState.DATASYNC, relid=n) for n in (1, 2)]
    workers = waiting(1, SubRelState.SYNCWAIT, 8) | waiting(2, SubRelState.SYNCWAIT, 9)
    assert decide(tables, workers, gated=20) == [
        AnswerCatchup(1, LSN(20)),
        AnswerCatchup(2, LSN(20)),
    ]


def test_sync_workers_are_limited_per_subscription() -> None:
    tables = [rel(SubRelState.INIT, relid=n) for n in (1, 2, 3)]
    assert decide(tables) == [LaunchSync(1), LaunchSync(2)]
    copying = {9: SyncWorkerState(9, SubRelState.DATASYNC, None)}
    assert decide(tables, copying) == [LaunchSync(1)]
    assert decide(tables, limit=0) == []


def test_a_failing_table_is_throttled_alone() -> None:
    tables = [rel(SubRelState.DATASYNC, relid=1), rel(SubRelState.INIT, relid=2)]
    assert decide(tables, last_start={1: 96.0}) == [LaunchSync(2)]
    assert decide(tables, last_start={1: 95.0}) == [LaunchSync(1), LaunchSync(2)]
    assert decide(tables, last_start={1: 90.0}, later={1: 20.0}) == [LaunchSync(2)]
    assert decide(tables, last_start={1: 80.0}, later={1: 20.0}) == [LaunchSync(1), LaunchSync(2)]


def test_a_suspended_table_is_left_alone_until_a_resume() -> None:
    held = replace(rel(SubRelState.DATASYNC), suspend_time=1)
    assert decide([held]) == []
    assert decide([held], waiting(7, SubRelState.CATCHUP, 5)) == []
    assert decide([replace(held, resuming=True)]) == [LaunchSync(7)]
    synced = replace(rel(SubRelState.SYNCDONE, 300), suspend_time=1)
    assert decide([synced], durable=400) == [SetReady(7, LSN(400))]
