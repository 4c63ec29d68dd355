"""The launcher's answers to workers and commands."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import psutil
import pytest

from catalog.errcodes import ObjectInUse
from subscriber.commands.hold_workers import hold_workers
from tests.subscriber.launcher_family import ROOT, Family, reported
from tests.waiting import wait_until
from workers.process.launcher_client import notify_launcher, stop_launcher, stop_workers
from workers.process.launcher_socket import LineReader, dial, encode
from workers.process.worker_slots import LogicalRepWorker


def test_a_worker_without_its_launcher_s_slot_is_refused(family: Family) -> None:
    family.start()
    message = {"id": 1, "op": "attach", "slot": 0, "generation": 9}
    assert ask(family, message)["error"]["sqlstate"] == "55006"


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


def test_a_command_can_end_the_family(family: Family) -> None:
    launcher = family.start()
    assert stop_launcher(family.data_dir)
    assert launcher.wait(20) == 0
    assert not stop_launcher(family.data_dir)


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


def test_an_apply_worker_stops_a_sync_worker_and_goes_on(family: Family) -> None:
    (subid,) = family.subscribe("stopsync")
    family.start()
    reported(family, subid, "phase", "stopped")
