"""Whom to launch and whom to stop, with a clock that the tests turn."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from catalog.pg_lsn import LSN
from catalog.pg_subscription import SubCreate
from config.guc import Settings
from workers.process.worker_slots import (
    Actions,
    LogicalRepWorker,
    SyncRefusal,
    WorkerSlots,
    WorkerType,
    decide,
    refuse_sync,
)

INTERVAL = 5.0


@dataclass(frozen=True, slots=True)
class Sub:
    oid: int
    subenabled: bool = True
    subcreate: str = SubCreate.READY


@dataclass
class FakeLauncher:
    """The launcher's loop over the pure parts: a clock, slots, and start times."""

    subs: list[Sub]
    settings: Settings = field(default_factory=Settings)
    now: float = 100.0
    starts: dict[int, float] = field(default_factory=dict)
    generation: int = 0

    def __post_init__(self) -> None:
        self.slots = WorkerSlots(self.settings.max_logical_replication_workers)

    def decide(self) -> Actions:
        return decide(self.subs, self.slots.rows(), self.starts, self.now, self.settings)

    def turn(self) -> Actions:
        actions = self.decide()
        for subid in (*actions.launch, *actions.no_slot):
            self.starts[subid] = self.now
        for subid in actions.launch:
            assert self.claim(subid)
        return actions

    def claim(self, subid: int, relid: int = 0) -> LogicalRepWorker | None:
        self.generation += 1
        return self.slots.claim(subid, relid, self.generation, 0)

    def sync(self, subid: int, relid: int) -> SyncRefusal | None:
        refusal = refuse_sync(subid, relid, self.subs, self.slots.rows(), self.settings)
        if refusal is None:
            assert self.claim(subid, relid)
        return refusal

    def exits(self, subid: int, relid: int = 0, *, on_purpose: bool = False) -> None:
        row = self.slots.find(subid, relid)
        assert row is not None
        self.slots.release(row.tenant)
        if on_purpose and not relid:
            self.starts.pop(subid, None)


def test_every_enabled_and_ready_subscription_gets_its_apply_worker_once() -> None:
    launcher = FakeLauncher(
        [
            Sub(1),
            Sub(2, subenabled=False),
            Sub(3, subcreate=SubCreate.CREATING),
            Sub(4, subcreate=SubCreate.DROPPING),
            Sub(5),
        ]
    )
    assert launcher.turn() == Actions(launch=(1, 5))
    assert launcher.turn() == Actions()


def test_a_worker_that_has_not_attached_yet_counts_as_running() -> None:
    launcher = FakeLauncher([Sub(1)])
    launcher.turn()
    row = launcher.slots.find(1, 0)
    assert row is not None
    assert not row.attached
    launcher.now += 100
    assert launcher.turn() == Actions()


def test_after_an_error_the_rest_of_the_interval_is_waited() -> None:
    launcher = FakeLauncher([Sub(1)])
    launcher.turn()
    launcher.exits(1)
    launcher.now += 2
    assert launcher.turn() == Actions(wake=3.0)
    launcher.now += 3
    assert launcher.turn() == Actions(launch=(1,))


def test_a_worker_that_ran_for_long_is_started_again_at_once() -> None:
    launcher = FakeLauncher([Sub(1)])
    launcher.turn()
    launcher.now += INTERVAL
    launcher.exits(1)
    assert launcher.turn() == Actions(launch=(1,))


def test_an_exit_on_purpose_is_followed_at_once_while_a_failing_one_waits() -> None:
    """H-14."""
    launcher = FakeLauncher([Sub(1), Sub(2)])
    launcher.turn()
    launcher.exits(1)
    launcher.exits(2, on_purpose=True)
    launcher.now += 0.5
    assert launcher.turn() == Actions(launch=(2,), wake=4.5)


def test_one_failing_subscription_delays_no_other() -> None:
    """H-14."""
    subs = [Sub(number) for number in range(1, 6)]
    launcher = FakeLauncher(subs, Settings(max_logical_replication_workers=8))
    assert launcher.turn().launch == (1, 2, 3, 4, 5)
    launcher.exits(3)
    launcher.subs.append(Sub(6))
    launcher.now += 0.25
    assert launcher.turn() == Actions(launch=(6,), wake=4.75)
    launcher.now += 5
    assert launcher.turn().launch == (3,)


def test_without_a_free_slot_it_is_tried_again_after_the_interval() -> None:
    launcher = FakeLauncher([Sub(1), Sub(2)], Settings(max_logical_replication_workers=1))
    assert launcher.turn() == Actions(launch=(1,), no_slot=(2,), wake=INTERVAL)
    launcher.now += 1
    assert launcher.turn() == Actions(wake=4.0)
    launcher.exits(1)
    launcher.now += 4
    assert launcher.turn().launch == (1,)


def test_the_sync_limit_does_not_keep_the_apply_worker_out() -> None:
    """H-15."""
    launcher = FakeLauncher([Sub(1)])
    launcher.turn()
    assert launcher.sync(1, 11) is None
    assert launcher.sync(1, 12) is None
    assert launcher.sync(1, 13) is SyncRefusal.SYNC_LIMIT
    launcher.exits(1)
    launcher.now += INTERVAL
    assert launcher.turn().launch == (1,)


def test_sync_workers_leave_a_slot_for_every_apply_worker_that_is_due() -> None:
    launcher = FakeLauncher(
        [Sub(1), Sub(2)],
        Settings(max_logical_replication_workers=3, max_sync_workers_per_subscription=5),
    )
    launcher.turn()
    launcher.exits(1)
    assert launcher.sync(2, 21) is None
    assert launcher.sync(2, 22) is SyncRefusal.NO_SLOT
    launcher.now += INTERVAL
    assert launcher.turn().launch == (1,)
    launcher.exits(2, 21)
    assert launcher.sync(2, 22) is None


def test_a_table_has_one_sync_worker_until_it_is_reaped() -> None:
    launcher = FakeLauncher([Sub(1)])
    launcher.turn()
    assert launcher.sync(1, 11) is None
    assert launcher.sync(1, 11) is SyncRefusal.RUNNING
    launcher.exits(1, 11)
    assert launcher.sync(1, 11) is None


@pytest.mark.parametrize("sub", [Sub(1, subenabled=False), Sub(1, subcreate=SubCreate.DROPPING)])
def test_workers_of_what_is_not_wanted_are_stopped_and_not_replaced(sub: Sub) -> None:
    launcher = FakeLauncher([Sub(1)])
    launcher.turn()
    assert launcher.sync(1, 11) is None
    launcher.subs = [sub]
    assert [row.relid for row in launcher.decide().stop] == [0, 11]
    assert launcher.sync(1, 12) is SyncRefusal.NOT_WANTED
    launcher.exits(1)
    launcher.exits(1, 11)
    assert launcher.decide() == Actions()


def test_workers_of_a_subscription_that_is_gone_are_stopped() -> None:
    launcher = FakeLauncher([Sub(1), Sub(2)])
    launcher.turn()
    launcher.subs = [Sub(2)]
    assert [row.subid for row in launcher.decide().stop] == [1]


def test_a_slot_s_next_tenant_is_not_its_last() -> None:
    slots = WorkerSlots(1)
    first = slots.claim(1, 0, 7, 0)
    assert first is not None
    assert slots.claim(2, 0, 7, 0) is None
    slots.release(first.tenant)
    second = slots.claim(2, 0, 7, 0)
    assert second is not None
    assert second.slot == first.slot
    assert slots.update(first.tenant, phase="old") is None
    slots.release(first.tenant)
    assert slots.rows() == [second]


def test_finding_workers() -> None:
    slots = WorkerSlots(4)
    apply, sync, other = slots.claim(1, 0, 1, 0), slots.claim(1, 9, 2, 0), slots.claim(2, 0, 1, 0)
    assert slots.find(1, 0) == apply
    assert slots.find(1, 9) == sync
    assert slots.find(1, 8) is None
    assert slots.of(1) == [apply, sync]
    assert slots.of(2) == [other]
    assert slots.free()


def test_a_row_survives_its_journey() -> None:
    row = LogicalRepWorker(1, 2, WorkerType.TABLESYNC, 16384, 16390)
    row = replace(row, relstate="w", relstate_lsn=LSN(0x1500), last_lsn=LSN(7), progress={"a": 1})
    assert LogicalRepWorker.from_json({**row.to_json(), "later": 1}) == row
    assert row.to_json()["relstate_lsn"] == "0/1500"
