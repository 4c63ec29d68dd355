"""Worker processes: started, stopped and reaped."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from catalog.errcodes import ObjectInUse
from tests.subscriber.launcher_family import Family, reported
from tests.waiting import wait_until
from workers.process.launcher_client import fork_spark_python, notify_launcher, stop_workers


def test_a_killed_worker_is_noticed_and_replaced(family: Family) -> None:
    (subid,) = family.subscribe("steady")
    family.start()
    first = family.await_worker(subid)
    family.kill(first.pid)
    second = family.await_worker(subid, after=first.generation)
    assert second.pid != first.pid
    assert "was terminated by signal 9" in family.log()


def test_a_worker_that_never_attaches_is_ended(family: Family) -> None:
    (subid,) = family.subscribe("silent")
    settings = {"wal_receiver_timeout": "500ms", "wal_retrieve_retry_interval": "100ms"}
    family.start(settings=settings, attach_timeout=0.5)
    wait_until(lambda: "has not attached in time" in family.log(), 20, family.log)

    def replaced() -> bool:
        sub = family.store.subscription(subid)
        return sub is not None and sub.generation > 1

    wait_until(replaced, 20, family.log)


def test_a_stop_never_hits_the_next_tenant_of_a_slot(family: Family) -> None:
    first, second = family.subscribe("stubborn", "steady")
    family.store.update_subscription(second, subenabled=False)
    family.start(settings={**family.options["settings"], "max_logical_replication_workers": 1})
    old = reported(family, first, "phase", "stubborn")
    # It gets SIGTERM and is to be killed after the grace time; but it dies first.
    family.store.update_subscription(first, subenabled=False)
    family.store.update_subscription(second, subenabled=True)
    with pytest.raises(ObjectInUse, match="has not ended in time"):
        stop_workers(family.data_dir, first, wait=0.2)
    family.kill(old.pid)
    new = family.await_worker(second)
    assert (new.slot, new.generation) == (old.slot, old.generation)  # only the subscription differs
    notify_launcher(family.data_dir)
    assert stop_workers(family.data_dir, first)
    still = family.worker(second)
    assert still is not None
    assert still.pid == new.pid


def test_nothing_secret_is_in_a_worker_s_arguments(family: Family) -> None:
    (subid,) = family.subscribe("steady")
    family.start()
    row = family.await_worker(subid)
    assert row.pid is not None
    argv = psutil.Process(row.pid).cmdline()
    assert argv[3:] == [
        *("--data-dir", str(family.data_dir), "--subid", str(subid), "--relid", "0"),
        *("--slot", "0", "--generation", "1"),
    ]
    assert os.getsid(row.pid) == row.pid


def test_a_fork_server_that_does_not_fork_gets_one_request_for_spark_s_python(
    tmp_path: Path,
) -> None:
    nobody = tmp_path / "nobody"  # a forked process finds no socket there, and ends
    with Family(tmp_path / "d", real_workers=True) as family:
        family.start(phase="starting")
        server = family.fork_server()
        server.suspend()
        wait_until(lambda: server.status() == psutil.STATUS_STOPPED, 20)
        assert fork_spark_python(family.data_dir, nobody)
        assert not fork_spark_python(family.data_dir, nobody)
        server.resume()
        wait_until(lambda: fork_spark_python(family.data_dir, nobody), 60, family.log)
