"""When the launcher starts and stops the workers of subscriptions."""

from __future__ import annotations

import re
import signal
import time
from functools import partial

from catalog.last_error import LastError
from subscriber.commands.hold_workers import hold_workers
from tests.subscriber.launcher_family import Family, reported
from tests.waiting import wait_until
from workers.process.launcher_client import notify_launcher
from workers.process.worker_slots import LogicalRepWorker


def test_a_subscription_that_appears_is_started_at_once(family: Family) -> None:
    family.start()
    (subid,) = family.subscribe("steady")
    assert notify_launcher(family.data_dir)
    family.await_worker(subid)


def test_disabling_and_dropping_stop_the_workers(family: Family) -> None:
    first, second = family.subscribe("steady-1", "steady-2")
    family.start()
    family.await_worker(first)
    family.await_worker(second)
    family.store.update_subscription(first, subenabled=False)
    family.store.delete_subscription(second)
    notify_launcher(family.data_dir)
    family.await_gone(first)
    family.await_gone(second)
    family.store.update_subscription(first, subenabled=True)
    notify_launcher(family.data_dir)
    family.await_worker(first)


def started(family: Family, subid: int) -> int:
    return getattr(family.store.subscription(subid), "generation", 0)


def test_an_error_exit_waits_for_the_interval(family: Family) -> None:
    (subid,) = family.subscribe("fails")
    family.start(settings={"wal_retrieve_retry_interval": "1s"})

    wait_until(lambda: started(family, subid) >= 1, 20, family.log)
    begin, before = time.monotonic(), started(family, subid)
    wait_until(lambda: started(family, subid) >= before + 2, 20, family.log)
    assert time.monotonic() - begin >= 1.0
    assert "exited with exit code 1" in family.log()


def test_after_a_gap_only_a_command_makes_it_try_again_soon(family: Family) -> None:
    lost, fails = family.subscribe("lost", "fails")
    family.start(settings={"wal_retrieve_retry_interval": "100ms"})
    wait_until(lambda: "exited with exit code 3" in family.log(), 20, family.log)
    wait_until(lambda: started(family, fails) >= 5, 20, family.log)
    assert started(family, lost) == 1
    notify_launcher(family.data_dir, lost)
    wait_until(lambda: started(family, lost) == 2, 20, family.log)
    with hold_workers(family.data_dir, lost, wait=20, lock=lambda: None):
        pass
    wait_until(lambda: started(family, lost) == 3, 20, family.log)
    for enabled in (False, True):
        family.store.update_subscription(lost, subenabled=enabled)
        notify_launcher(family.data_dir)
        before = started(family, fails)
        wait_until(partial(lambda n: started(family, fails) > n, before), 20, family.log)
    wait_until(lambda: started(family, lost) == 4, 20, family.log)


def test_a_repeated_error_waits_longer_and_longer_until_something_changes(family: Family) -> None:
    (repeats,) = family.subscribe("repeats")
    family.store.put_last_error(LastError(repeats, 0, 1, "23505", "a key is there twice"))
    launcher = family.start(settings={"wal_retrieve_retry_interval": "100ms"})
    wait_until(lambda: "next attempt in 3 s" in family.log(), 30, family.log)
    waits = [float(each) for each in re.findall(r"next attempt in ([0-9]+) s", family.log())]
    assert waits == sorted(waits)
    (error,) = family.store.last_errors()
    assert 0 < (error.next_attempt or 0) - time.time_ns() // 1000 < 4_000_000
    before = started(family, repeats)
    assert notify_launcher(family.data_dir)
    wait_until(lambda: started(family, repeats) >= before + 4, 6, family.log)
    wait_until(lambda: family.log().count("next attempt in 3 s") == 2, 30, family.log)
    before = started(family, repeats)
    launcher.send_signal(signal.SIGHUP)
    wait_until(lambda: started(family, repeats) >= before + 4, 6, family.log)


def test_a_failing_subscription_does_not_delay_the_restart_of_another(family: Family) -> None:
    """H-13, H-14: five at once, one of which fails; the others start, and restart, at once."""
    subids = family.subscribe("fails-1", "quits", "steady-1", "steady-2", "steady-3")
    settings = {"wal_retrieve_retry_interval": "1min", "max_logical_replication_workers": 8}
    family.start(settings=settings)
    for subid in subids[1:]:
        family.await_worker(subid)
    quits = family.await_worker(subids[1])
    begin = time.monotonic()
    notify_launcher(family.data_dir, subids[1])
    family.await_worker(subids[1], after=quits.generation)
    assert time.monotonic() - begin < 10


def test_more_subscriptions_than_slots_are_warned_of(family: Family) -> None:
    subids = family.subscribe("steady-1", "steady-2")
    settings = {"max_logical_replication_workers": 1, "wal_retrieve_retry_interval": "200ms"}
    family.start(settings=settings)
    wait_until(lambda: "out of logical replication worker slots" in family.log(), 20, family.log)
    assert 'HINT:  You might need to increase "max_logical_replication_workers".' in family.log()
    family.store.update_subscription(subids[0], subenabled=False)
    notify_launcher(family.data_dir)
    family.await_worker(subids[1])


def test_tables_are_handed_over_through_the_slots(family: Family) -> None:
    (subid,) = family.subscribe("syncs")
    family.start(settings={**family.options["settings"], "max_sync_workers_per_subscription": 3})
    row = wait_until(lambda: _all_done(family.worker(subid)), 20, family.log)
    assert row is not None
    states = {row.relid: (row.relstate, row.relstate_lsn) for row in family.status().workers}
    assert {states[relid] for relid in (1, 2, 3)} == {("s", 0x101)}
    notify_launcher(family.data_dir, subid)
    wait_until(lambda: len(family.status().workers) == 1, 20, family.log)


def _all_done(row: LogicalRepWorker | None) -> LogicalRepWorker | None:
    return row if row and row.progress and row.progress["done"] == [1, 2, 3] else None


def test_the_apply_worker_comes_back_beside_running_sync_workers(family: Family) -> None:
    (subid,) = family.subscribe("crowded")
    family.start()
    expected = {"launched": [True, True, False, False]}
    apply = reported(family, subid, "progress", expected)
    family.await_worker(subid, 1)
    family.await_worker(subid, 2)
    family.kill(apply.pid)
    family.await_worker(subid, after=apply.generation)
    assert {row.relid for row in family.status().workers} == {0, 1, 2}
