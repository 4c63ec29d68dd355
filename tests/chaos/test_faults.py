"""What a seed decides is the same each time; a fault counts only when it hit somebody."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tests.chaos.__main__ import _summary
from tests.chaos.faults import (
    _CAUSES,
    HEAVY,
    LIGHT,
    Fault,
    Victims,
    cause,
    full_disk,
    reached,
    slow_storage,
)
from tests.chaos.outcome import Outcome
from tests.chaos.plan import make_plan
from tests.chaos.workload import Workload
from tests.crash.failpoint_files import Failpoints
from tests.crash.proxy import Proxy
from tests.waiting import wait_until

SEEDS = range(1, 41)
STEPS = 2000
BUSY = "while True: pass"


def digest() -> str:
    """Of all that these seeds decide."""
    told = hashlib.sha256()
    for seed in SEEDS:
        told.update(repr(make_plan(seed)).encode())
        told.update(repr(list(islice(Workload(seed, "s").steps(), STEPS // 10))).encode())
    told.update(repr(list(islice(Workload(17, "s").steps(), STEPS))).encode())
    return told.hexdigest()


def test_a_seed_decides_the_same_in_every_process() -> None:
    """The other one hashes strings in another way, and so has its sets in another order."""
    program = "from tests.chaos.test_faults import digest; print(digest())"
    root = str(Path(__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": root, "PYTHONHASHSEED": "4711"}
    argv = [sys.executable, "-P", "-c", program]
    other = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == digest() == digest()


def test_seeds_differ() -> None:
    assert len({repr(make_plan(seed).faults) for seed in SEEDS}) == len(SEEDS)
    steps = {repr(list(islice(Workload(seed, "s").steps(), 50))) for seed in SEEDS}
    assert len(steps) == len(SEEDS)


def test_every_kind_is_planned_and_can_be_caused() -> None:
    planned = {fault.kind for seed in range(1, 201) for fault in make_plan(seed).faults}
    assert planned == {*LIGHT, *HEAVY} == set(_CAUSES)


def test_what_lasts_has_a_length() -> None:
    for seed in range(1, 201):
        for fault in make_plan(seed).faults:
            lasts = fault.kind.split()[0] in ("delay", "freeze", "stall", "disk", "slow")
            assert lasts == (fault.seconds > 0), fault


# -- what took effect ----------------------------------------------------------------------------


def victims(family: Any, proxy: Any = None) -> Victims:
    """Only what a fault needs; no servers."""
    publisher: Any = SimpleNamespace()
    return Victims(family, publisher, proxy, "sub", threading.Event(), threading.Lock())


def nobody() -> Any:
    """A family of which only the launcher is there, without a child."""
    launcher = SimpleNamespace(children=lambda **_how: [])
    return SimpleNamespace(
        apply_pid=lambda _name: None,
        sync_pids=lambda _name: [],
        status=lambda: SimpleNamespace(lake_pid=None),
        pgsub=SimpleNamespace(family=list, launcher=launcher),
    )


@pytest.mark.parametrize(
    "kind",
    [
        *("kill apply worker", "kill sync worker", "kill lake server", "kill fork server"),
        *("kill Spark's Python daemons", "kill Spark's Python workers", "freeze apply worker"),
        *("freeze lake server", "disk full", "slow machine"),
    ],
)
def test_where_nobody_is_nobody_is_hit(kind: str) -> None:
    assert cause(Fault(0, kind, 0.01), victims(nobody())) == ""


def test_connections_that_are_over_are_not_cut_or_stalled() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        database: Any = SimpleNamespace(server=SimpleNamespace(port=server.getsockname()[1]))
        with Proxy(database) as proxy:
            found = victims(nobody(), proxy)
            assert cause(Fault(0, "cut connections"), found) == ""
            port = proxy._listener.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port)):
                wait_until(lambda: proxy.connections, 10, "it is let in")
                assert cause(Fault(0, "stall connections", 0.01), found) == "1 connections"
            wait_until(lambda: not proxy.connections, 10, "it is over")
            wait_until(lambda: not proxy._sockets, 10, "its descriptors are closed")
            assert cause(Fault(0, "stall connections", 0.01), found) == ""
            with socket.create_connection(("127.0.0.1", port)):
                wait_until(lambda: proxy.connections, 10, "it is let in")
                assert cause(Fault(0, "cut connections"), found) == "1 connections"
            assert cause(Fault(0, "cut connections"), found) == ""


def test_a_disk_is_full_for_nobody_afterwards() -> None:
    """Processes are started while those that exist are freed, with the limit of their parent."""
    family = [Limited(1)]

    def look() -> list[Any]:
        found = list(family)
        if len(family) < 4:
            family.append(Limited(len(family) + 1, family[0].size))
        return found

    with full_disk(look) as hit:
        assert hit == {1}
        assert family[0].size != psutil.RLIM_INFINITY
    assert [each.size for each in family] == [psutil.RLIM_INFINITY] * 4


@dataclass
class Limited:
    """A process and the limit on the size of its files."""

    pid: int
    size: int = psutil.RLIM_INFINITY

    def rlimit(self, _resource: int, limits: tuple[int, int]) -> None:
        self.size = limits[0]


def test_a_place_counts_as_often_as_somebody_came(tmp_path: Path) -> None:
    failpoints = Failpoints(tmp_path)
    family = SimpleNamespace(failpoints=failpoints)
    kill, error, delay = (
        Fault(1, "kill at a place", place="apply.fenced"),
        Fault(2, "error at a place", place="apply.fenced"),
        Fault(3, "delay at a place", 0.5, place="apply.before_fence"),
    )
    for fault in (kill, error, delay):
        assert cause(fault, victims(family)) == "", "nobody has come yet"
        if fault is kill:
            (tmp_path / "apply.fenced").rename(tmp_path / "apply.fenced.4711")
    assert (tmp_path / "apply.fenced").read_text() == "raise"
    faults = [kill, error, delay, Fault(4, "disk full", 1.0)]
    assert reached(faults, failpoints) == [kill]
    (tmp_path / "apply.fenced").rename(tmp_path / "apply.fenced.4712")
    assert reached(faults, failpoints) == [kill, error]


def test_the_summary_says_planned_and_took_effect() -> None:
    plan = make_plan(1)
    hit = plan.faults[:1]
    outcomes = [
        Outcome(plan, 1.0, 150, None, None, Path("seed-1"), hit),
        Outcome(plan, 1.0, 150, None, None, Path("seed-1")),
    ]
    lines = _summary(outcomes, 60.0).splitlines()
    assert f"faults planned {2 * len(plan.faults)}, took effect 1," in lines[0]
    planned = sum(fault.kind == hit[0].kind for fault in plan.faults)
    assert f"  {hit[0].kind}: planned {2 * planned}, took effect 1" in lines


# -- slowness ------------------------------------------------------------------------------------


@pytest.fixture
def busy() -> Iterator[psutil.Popen]:
    """A process that takes all the time it gets."""
    with psutil.Popen([sys.executable, "-I", "-c", BUSY]) as process:
        yield process
        process.kill()


def test_processes_of_a_slow_machine_run_a_part_of_the_time(busy: psutil.Popen) -> None:
    family = SimpleNamespace(pgsub=SimpleNamespace(family=lambda: [psutil.Process(busy.pid)]))
    before, began = busy.cpu_times().user, time.monotonic()
    assert cause(Fault(0, "slow machine", 2.0), victims(family)) == "1 processes"
    share = (busy.cpu_times().user - before) / (time.monotonic() - began)
    assert share < 0.5
    assert busy.status() != psutil.STATUS_STOPPED


def test_slow_storage_has_openings_reads_and_writes_wait(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    pause = 0.03

    def waits(act: Any) -> bool:
        began = time.monotonic()
        act()
        return time.monotonic() - began >= pause

    try:
        with slow_storage(tmp_path, pause * 1000) as waited:
            with (tmp_path / "before" / "file").open("wb", buffering=0) as file:
                assert waits(lambda: file.write(b"x"))
                assert waits(lambda: file.write(b"y"))
            assert waits(lambda: (tmp_path / "before" / "file").open("rb").close())
            assert waits((tmp_path / "before" / "file").read_bytes)
            later = tmp_path / "later" / "below"
            later.mkdir(parents=True)
            wait_until(
                lambda: waits(lambda: (later / "file").write_bytes(b"")),
                10,
                "new folders are slow too",
            )
    except OSError as error:
        pytest.skip(f"slow storage needs Linux 6.14 and its root: {error}")
    assert waited[0] >= 6
    assert not waits(lambda: (tmp_path / "before" / "file").write_bytes(b"as fast as before"))
