"""The launcher's promises, kept with real processes: workers that apply nothing, a lake of air."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from catalog.errcodes import ObjectInUse
from catalog.pg_subscription import SubCreate
from subscriber.commands.hold_workers import hold_workers
from tests.subscriber.fake_launcher import COUNT
from tests.subscriber.launcher_family import ROOT, Family
from tests.waiting import wait_until
from workers.process.launcher_client import notify_launcher, stop_launcher, stop_workers
from workers.process.launcher_socket import LineReader, dial, encode, read_lock_file
from workers.process.worker_slots import LogicalRepWorker


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    with Family(tmp_path / "d") as made:
        yield made


def reported(family: Family, subid: int, name: str, value: Any) -> LogicalRepWorker:
    """Wait until the apply worker has reported something."""

    def found() -> LogicalRepWorker | None:
        row = family.worker(subid)
        return row if row is not None and getattr(row, name) == value else None

    return wait_until(found, 20, family.log)


# -- apply workers -----------------------------------------------------------------------------


def test_ready_enabled_subscriptions_get_workers_and_sigterm_ends_all(family: Family) -> None:
    first, second, third = family.subscribe("steady-1", "steady-2", "steady-3")
    family.store.update_subscription(second, subenabled=False)
    family.store.update_subscription(third, subcreate=SubCreate.CREATING)
    launcher = family.start()
    family.await_worker(first)
    assert [row.subid for row in family.status().workers] == [first]
    descendants = family.descendants()
    assert len(descendants) == 2  # the worker and the lake server
    launcher.send_signal(signal.SIGTERM)
    assert launcher.wait(20) == 0
    _, alive = psutil.wait_procs(descendants, timeout=5)
    assert not alive
    assert not (family.data_dir / ".s.pgsub").exists()
    assert read_lock_file(family.data_dir) is None


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


def test_more_subscriptions_than_slots_are_warned_of(family: Family) -> None:
    subids = family.subscribe("steady-1", "steady-2")
    settings = {"max_logical_replication_workers": 1, "wal_retrieve_retry_interval": "200ms"}
    family.start(settings=settings)
    wait_until(lambda: "out of logical replication worker slots" in family.log(), 20, family.log)
    assert 'HINT:  You might need to increase "max_logical_replication_workers".' in family.log()
    family.store.update_subscription(subids[0], subenabled=False)
    notify_launcher(family.data_dir)
    family.await_worker(subids[1])


# -- sync workers ------------------------------------------------------------------------------


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


def test_a_worker_without_its_launcher_s_slot_is_refused(family: Family) -> None:
    family.start()
    message = {"id": 1, "op": "attach", "slot": 0, "generation": 9}
    assert ask(family, message)["error"]["sqlstate"] == "55006"


# -- stopping workers --------------------------------------------------------------------------


def test_stopping_returns_when_the_workers_are_gone(family: Family) -> None:
    (subid,) = family.subscribe("crowded")
    family.start()
    family.await_worker(subid, 1)
    sync = family.await_worker(subid, 2)
    assert sync.pid is not None
    process = psutil.Process(sync.pid)
    assert stop_workers(family.data_dir, subid, 2)
    assert not process.is_running()
    assert family.worker(subid, 1) is not None
    family.store.update_subscription(subid, subenabled=False)
    assert stop_workers(family.data_dir, subid)
    assert family.status().workers == ()


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


def test_a_change_is_acknowledged_by_every_worker_of_the_subscription(family: Family) -> None:
    good, bad = family.subscribe("steady", "stubborn")
    family.start()
    family.await_worker(good)
    row = reported(family, bad, "phase", "stubborn")
    assert notify_launcher(family.data_dir, good, wait=10)
    with pytest.raises(ObjectInUse, match="has not come to a batch boundary") as caught:
        notify_launcher(family.data_dir, bad, wait=0.2)
    assert caught.value.detail == f"Waited for PID {row.pid}."


def test_a_copy_in_progress_is_not_waited_for(family: Family) -> None:
    (subid,) = family.subscribe("copies")
    family.start()
    wait_until(lambda: _is_copying(family.worker(subid, 1)), 20, family.log)
    assert notify_launcher(family.data_dir, subid, wait=10)
    assert stop_workers(family.data_dir, subid, 1)


def _is_copying(row: LogicalRepWorker | None) -> bool:
    return row is not None and row.relstate == "d"


def test_no_worker_runs_while_a_command_holds_it_and_a_dead_command_holds_nothing(
    family: Family,
) -> None:
    held, free = family.subscribe("steady-1", "steady-2")
    family.start()
    before = family.await_worker(held)
    family.await_worker(free)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(family.data_dir), str(held)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert [row.subid for row in family.status().workers] == [free]
        notify_launcher(family.data_dir, held)
        assert family.worker(held) is None
        holder.kill()
    assert family.await_worker(held).generation == before.generation + 1
    stored = family.store.subscription(held)
    assert stored is not None
    assert stored.subenabled


HOLD = """
import signal, sys
from pathlib import Path
from subscriber.commands.hold_workers import hold_workers
with hold_workers(Path(sys.argv[1]), int(sys.argv[2]), wait=20, lock=lambda: None):
    print("held", flush=True)
    signal.pause()
"""


def test_a_worker_that_does_not_end_cannot_be_held(family: Family) -> None:
    (subid,) = family.subscribe("stubborn")
    family.start()
    reported(family, subid, "phase", "stubborn")
    with (
        pytest.raises(ObjectInUse, match="has not ended in time") as caught,
        hold_workers(family.data_dir, subid, wait=0.2, lock=lambda: None),
    ):
        pass
    assert caught.value.hint


def test_without_a_launcher_the_family_lock_is_held(tmp_path: Path) -> None:
    locked: list[bool] = []
    with hold_workers(tmp_path, 1, wait=1, lock=lambda: locked.append(True)):
        assert locked == [True]


def test_a_second_signal_does_not_wait_for_a_stubborn_worker(family: Family) -> None:
    (subid,) = family.subscribe("stubborn")
    launcher = family.start()
    reported(family, subid, "phase", "stubborn")
    launcher.send_signal(signal.SIGINT)
    wait_until(lambda: family.status().phase == "stopping", 10, family.log)
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(10) == 0


def test_a_command_can_end_the_family(family: Family) -> None:
    launcher = family.start()
    assert stop_launcher(family.data_dir)
    assert launcher.wait(20) == 0
    assert not stop_launcher(family.data_dir)


# -- the lake server and the configuration file ------------------------------------------------


def test_a_lake_server_that_dies_is_replaced_and_workers_hear_of_it(family: Family) -> None:
    (subid,) = family.subscribe("lake")
    family.store.hand_over_spark_session("me", "of the server before", time.time())
    family.start()
    reported(family, subid, "phase", "sc://localhost:1")
    assert family.store.take_spark_session(subid, 7, 1) is None
    family.store.hand_over_spark_session("me", "of this one", time.time())
    family.kill(family.status().lake_pid)
    reported(family, subid, "phase", "sc://localhost:2")
    assert family.store.take_spark_session(subid, 7, 1) is None
    assert (family.data_dir / COUNT).read_text() == "2"
    assert "lake server ended with status -9" in family.log()


def test_a_remote_lake_has_no_server_of_ours(family: Family) -> None:
    (subid,) = family.subscribe("lake")
    family.store.hand_over_spark_session("me", "it knows this", time.time())
    family.start(remote="sc://cluster:15002")
    reported(family, subid, "phase", "sc://cluster:15002")
    assert family.store.take_spark_session(subid, 7, 1) == ("me", "it knows this")
    assert family.status().lake_pid is None
    assert not (family.data_dir / COUNT).exists()


def test_a_file_that_cannot_be_applied_ends_the_family(family: Family) -> None:
    family.subscribe("steady")
    launcher = family.begin(bad_file=True)
    _, said = launcher.communicate(timeout=20)
    assert launcher.returncode == 1
    assert "sqlstate=55000 the file is wrong" in said
    assert "DETAIL:  Seen by apply_file." in said
    assert "Traceback" not in said


def test_a_lake_that_cannot_be_started_ends_the_family(family: Family) -> None:
    family.subscribe("steady")
    launcher = family.begin(no_java=True)
    _, said = launcher.communicate(timeout=20)
    assert launcher.returncode == 1
    assert "sqlstate=55000 no Java" in said
    assert "HINT:  Install one." in said


def test_worker_lines_reach_the_launcher_s_standard_error(family: Family) -> None:
    family.subscribe("steady")
    launcher = family.start()
    family.await_worker(16384)
    launcher.terminate()
    _, said = launcher.communicate(timeout=20)
    assert said == (family.data_dir / "log" / "pgsub.log").read_text()


# -- the socket --------------------------------------------------------------------------------


def ask(family: Family, message: dict[str, Any]) -> dict[str, Any]:
    sock = dial(family.data_dir)
    assert sock is not None
    reader = LineReader()
    with sock:
        sock.settimeout(10)
        sock.sendall(encode(message))
        while True:
            data = sock.recv(65536)
            assert data
            for reply in reader.feed(data):
                return reply


def test_the_socket_is_the_owner_s_alone(family: Family) -> None:
    family.start()
    info = read_lock_file(family.data_dir)
    assert info is not None
    assert info.socket.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "message",
    [
        {"id": 1, "op": "nonsense"},
        {"id": 1, "op": "find"},
        {"id": 1, "op": "set_relstate", "subid": 1, "relid": 1, "state": "x", "lsn": None},
        {"id": 1, "op": "set_relstate", "subid": 1, "relid": 1, "state": "w", "lsn": "y"},
        {"id": 1, "op": "report", "phase": "not attached"},
        {"id": 1, "op": "stop_workers", "subid": "z", "relid": None, "wait": 1},
    ],
    ids=lambda message: str(message["op"]),
)
def test_a_wrong_request_gets_an_error(family: Family, message: dict[str, Any]) -> None:
    family.start()
    assert "error" in ask(family, message)
    assert family.status().phase == "running"


def test_garbage_is_hung_up_on(family: Family) -> None:
    family.start()
    sock = dial(family.data_dir)
    assert sock is not None
    with sock:
        sock.settimeout(10)
        sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert sock.recv(1) == b""
    assert family.status().phase == "running"


def test_a_frozen_client_holds_up_nobody(family: Family) -> None:
    (subid,) = family.subscribe("steady")
    launcher = family.start()
    frozen = family.await_worker(subid)
    family.kill(frozen.pid, signal.SIGSTOP)
    sock = dial(family.data_dir)
    assert sock is not None
    with sock:
        sock.settimeout(0.5)
        flood = encode({"id": 1, "op": "status"}) * 100_000
        with pytest.raises(TimeoutError):  # it asks and asks, and never reads
            sock.sendall(flood)
        for _ in range(2000):
            notify_launcher(family.data_dir, subid)
        assert psutil.Process(launcher.pid).memory_info().rss < 200 * 2**20
        (other,) = family.subscribe("steady-2")
        notify_launcher(family.data_dir)
        family.await_worker(other)
    family.kill(frozen.pid, signal.SIGCONT)
    assert notify_launcher(family.data_dir, subid, wait=10)


def test_many_clients_come_and_go(family: Family) -> None:
    family.start()
    held = []
    try:
        for _ in range(100):
            sock = dial(family.data_dir)
            assert isinstance(sock, socket.socket)
            held.append(sock)
        assert family.status().phase == "running"
    finally:
        for sock in held:
            sock.close()
    assert family.status().phase == "running"


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
