"""What goes wrong during a run, and when: planned from the seed, then done to real processes.

A plan is data; ``cause`` does one fault and undoes it again where it is one that passes. Faults
that take away what everything needs (launcher, fork server, lake server, publisher) are rarer,
because coming back from them takes most of a run's time.

A fault takes effect when it hits somebody: a process, a connection, a file in use, or the process
that comes to a place. There may be nobody: no table is being copied, the worker has just died, the
place is never reached.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock
from typing import Final

import psutil

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.crash.failpoint_files import Failpoints
from tests.crash.family import Family
from tests.crash.proxy import Proxy
from tests.processes import fork_server_of, name_of
from workers.parent_death import dying_with_parent
from workers.process.failpoints import (
    APPLY,
    BEFORE_SCHEMA_CHANGE,
    BEFORE_TABLE_RENAME,
    COLUMN_FILLED,
    COLUMN_TO_FILL,
    EMPTIED,
    FENCE,
    READY,
    RENAME_NOTED,
    RENAME_STORED,
    SCHEMA_CHANGED,
    SCHEMA_STORED,
    SHAPE_STORED,
    SUSPENDED,
    SUSPENDING,
    TABLE_RENAMED,
    TABLESYNC,
    UNDO,
)

LATER: Final = "apply.branch_rewritten"
"""Came when seeds were known by what they draw, and each has its place by its number."""
PLACES: Final = (
    *(place for place in APPLY if place != LATER),
    *FENCE,
    *READY,
    *TABLESYNC,
    *UNDO,
)

CHANGED: Final = (
    BEFORE_SCHEMA_CHANGE,
    SCHEMA_CHANGED,
    SCHEMA_STORED,
    SHAPE_STORED,
    COLUMN_TO_FILL,
    COLUMN_FILLED,
    RENAME_NOTED,
    BEFORE_TABLE_RENAME,
    TABLE_RENAMED,
    RENAME_STORED,
    SUSPENDING,
    SUSPENDED,
    *EMPTIED,
)
"""The places around tables that change."""

LIGHT: Final = (
    "kill apply worker",
    "kill sync worker",
    "kill Spark's Python daemons",
    "kill Spark's Python workers",
    "kill at a place",
    "error at a place",
    "delay at a place",
    "freeze apply worker",
    "freeze lake server",
    "cut connections",
    "stall connections",
    "disk full",
    "slow machine",
    "slow storage",
)
HEAVY: Final = (
    "kill launcher",
    "kill fork server",
    "kill lake server",
    "restart publisher",
    "crash publisher",
)

_DISK_LEFT: Final = 4096
"""Bytes a file may have while the disk is full."""

_STOPPED: Final = 0.08
_RUNNING: Final = 0.02
"""Seconds of each slice of a slow machine."""

_SLOW_STORAGE: Final = Path(__file__).with_name("slow_storage.py")
_MILLISECONDS: Final = 5
"""What each opening, reading and writing takes on slow storage, one after the other."""


@dataclass(frozen=True, slots=True)
class Fault:
    """``after`` so many transactions; ``seconds`` for what passes; ``place`` of a failpoint.

    ``times`` requests to the lake are concerned, and have the answer ``status``.
    """

    after: int
    kind: str
    seconds: float = 0.0
    place: str = ""
    times: int = 0
    status: int = 0

    def __str__(self) -> str:
        what = f"{self.kind} {self.place}".strip()
        told = f"after {self.after}: {what}" + f" for {self.seconds:g} s" * bool(self.seconds)
        return told + f" or {self.times} requests, {self.status}" * bool(self.times)


def plan_faults(chance: random.Random, transactions: int) -> list[Fault]:
    """Three to six faults, of which at most one is heavy, in the order of their time."""
    kinds = [chance.choice(LIGHT) for _ in range(chance.randint(3, 5))]
    if chance.random() < 0.4:
        kinds.append(chance.choice(HEAVY))
    faults = []
    for kind in kinds:
        passing = kind.split()[0] in ("freeze", "stall", "disk", "delay", "slow")
        faults.append(
            Fault(
                chance.randrange(transactions),
                kind,
                round(chance.uniform(0.3, 6.0), 1) if passing else 0.0,
                chance.choice(PLACES) if kind.endswith("a place") else "",
            )
        )
    return sorted(faults, key=lambda fault: fault.after)


def plan_faults_of_changes(chance: random.Random, transactions: int) -> list[Fault]:
    """Two faults at places around changed tables."""
    kinds = [chance.choice(("kill", "kill", "error", "delay")) for _ in range(2)]
    return [
        Fault(
            chance.randrange(transactions),
            f"{kind} at a place",
            round(chance.uniform(0.3, 6.0), 1) if kind == "delay" else 0.0,
            chance.choice(CHANGED),
        )
        for kind in kinds
    ]


@dataclass(frozen=True, slots=True)
class Victims:
    """What faults act on. ``ended`` is set when the workload is over.

    ``commands`` is held by a command that runs: without a launcher it would start a lake server of
    its own, and keep the next launcher out as long as it runs.
    """

    family: Family
    publisher: EmbeddedPublisher
    proxy: Proxy
    subscription: str
    ended: Event
    commands: Lock


def cause(fault: Fault, victims: Victims) -> str:
    """Do it, wait as long as it lasts, undo it; a word on what was hit, nothing if nobody was.

    A place is only armed: ``reached`` says later whether somebody came there.
    """
    return _CAUSES[fault.kind](fault, victims)


def reached(faults: Sequence[Fault], failpoints: Failpoints) -> list[Fault]:
    """Those at a place that met a process; before the failpoints are cleared."""
    came = Counter({fault.place: failpoints.visitors(fault.place) for fault in faults})
    hit = []
    for fault in faults:
        if fault.place and came[fault.place] > 0:
            came[fault.place] -= 1
            hit.append(fault)
    return hit


def _kill_apply(_fault: Fault, victims: Victims) -> str:
    return _signal(victims.family.apply_pid(victims.subscription), signal.SIGKILL)


def _kill_sync(_fault: Fault, victims: Victims) -> str:
    pids = victims.family.sync_pids(victims.subscription)
    return _signal(pids[0] if pids else None, signal.SIGKILL)


def _kill_fork_server(_fault: Fault, victims: Victims) -> str:
    """All workers die with it."""
    server = fork_server_of(victims.family.pgsub.launcher)
    return _signal(server.pid if server else None, signal.SIGKILL)


def _kill_python_daemons(_fault: Fault, victims: Victims) -> str:
    return _kill_all(_python_daemons(victims))


def _kill_python_workers(_fault: Fault, victims: Victims) -> str:
    daemons = _python_daemons(victims)
    return _kill_all([worker for daemon in daemons for worker in daemon.children(recursive=True)])


def _python_daemons(victims: Victims) -> list[psutil.Process]:
    """The processes that fork the workers which copy large tables.

    Each is forked by the fork server, or is a child of the lake server.
    """
    lake = victims.family.status().lake_pid
    started = psutil.Process(lake).children() if lake else []
    forked = victims.family.pgsub.launcher.children(recursive=True)
    pythons = [each for each in forked if name_of(each) == "pgsub python"]
    daemons = [child for child in started if "python" in name_of(child)]
    for each in pythons:
        with suppress(psutil.NoSuchProcess):
            daemons += [each] if each.parent() not in pythons else []
    return daemons


def _kill_all(processes: Sequence[psutil.Process]) -> str:
    return ", ".join(filter(None, (_signal(each.pid, signal.SIGKILL) for each in processes)))


def _at_place(fault: Fault, victims: Victims) -> str:
    action = {"kill": "kill", "error": "raise", "delay": f"delay {fault.seconds}"}
    victims.family.failpoints.arm(fault.place, action=action[fault.kind.split()[0]])
    return ""


def _freeze_apply(fault: Fault, victims: Victims) -> str:
    return _freeze(victims.family.apply_pid(victims.subscription), fault, victims)


def _freeze_lake(fault: Fault, victims: Victims) -> str:
    return _freeze(victims.family.status().lake_pid, fault, victims)


def _freeze(pid: int | None, fault: Fault, victims: Victims) -> str:
    hit = _signal(pid, signal.SIGSTOP)
    try:
        victims.ended.wait(fault.seconds)
    finally:
        _signal(pid, signal.SIGCONT)
    return hit


def _cut(_fault: Fault, victims: Victims) -> str:
    return _connections(victims.proxy.cut())


def _stall(fault: Fault, victims: Victims) -> str:
    with victims.proxy.stalled():
        before = victims.proxy.connections
        victims.ended.wait(fault.seconds)
        return _connections(max(before, victims.proxy.connections))


def _connections(count: int) -> str:
    return f"{count} connections" if count else ""


def _slow_machine(fault: Fault, victims: Victims) -> str:
    """Launcher, lake server and workers run a fifth of the time."""
    until = time.monotonic() + fault.seconds
    hit: set[int] = set()
    while time.monotonic() < until and not victims.ended.is_set():
        stopped = victims.family.pgsub.family()
        try:
            for process in stopped:
                with suppress(psutil.NoSuchProcess):
                    process.suspend()
                    hit.add(process.pid)
            victims.ended.wait(_STOPPED)
        finally:
            for process in stopped:
                with suppress(psutil.NoSuchProcess):
                    process.resume()
        victims.ended.wait(_RUNNING)
    return f"{len(hit)} processes" if hit else ""


def _slow_storage(fault: Fault, victims: Victims) -> str:
    with slow_storage(victims.family.pgsub.data_dir) as waited:
        victims.ended.wait(fault.seconds)
    return f"{waited[0]} openings, readings and writings of files" if waited[0] else ""


@contextmanager
def slow_storage(folder: Path, milliseconds: float = _MILLISECONDS) -> Iterator[list[int]]:
    """Whoever uses a file below a folder waits for it, meanwhile; how many did is known after.

    OSError where the kernel does not let us (``slow_storage.py`` says what it takes).
    """
    argv = dying_with_parent(
        [sys.executable, "-I", str(_SLOW_STORAGE), str(folder), str(milliseconds)]
    )
    waited: list[int] = []
    with subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline().strip()
        if said != "ready":
            raise OSError(said)
        try:
            yield waited
        finally:
            waited.append(int(process.communicate()[0]))


def _disk_full(fault: Fault, victims: Victims) -> str:
    with full_disk(victims.family.pgsub.family) as limited:
        victims.ended.wait(fault.seconds)
    return f"{len(limited)} processes" if limited else ""


@contextmanager
def full_disk(processes: Callable[[], list[psutil.Process]]) -> Iterator[set[int]]:
    """No file of these processes, and of those they start, may grow; the pids.

    A limit on the size of files fails as a full disk does, in the middle of a write too, and needs
    no file system of its own. But it says EFBIG; what says ENOSPC is in test_disk_full.py.
    """
    limited = {process.pid: process for process in processes()}
    hit: set[int] = set()
    try:
        hit |= {process.pid for process in limited.values() if _limit(process, _DISK_LEFT)}
        yield hit
    finally:
        # Children that were started meanwhile have inherited the limit, also while this looks.
        free: dict[int, psutil.Process] = {}
        while limited:
            for process in limited.values():
                _limit(process, psutil.RLIM_INFINITY)
            free |= limited
            limited = {}
            with suppress(psutil.NoSuchProcess):
                limited = {each.pid: each for each in processes() if each.pid not in free}


def _limit(process: psutil.Process, size: int) -> bool:
    with suppress(psutil.NoSuchProcess, ProcessLookupError):
        process.rlimit(psutil.RLIMIT_FSIZE, (size, psutil.RLIM_INFINITY))
        return True
    return False


def _kill_launcher(_fault: Fault, victims: Victims) -> str:
    with victims.commands:
        victims.family.kill_launcher()
        victims.family.start()
    return "launcher, and all with it; started again"


def _kill_lake(_fault: Fault, victims: Victims) -> str:
    return _signal(victims.family.status().lake_pid, signal.SIGKILL)


def _restart_publisher(_fault: Fault, victims: Victims) -> str:
    victims.publisher.restart("fast")
    return "publisher"


def _crash_publisher(_fault: Fault, victims: Victims) -> str:
    victims.publisher.restart("immediate")
    return "publisher"


def _signal(pid: int | None, number: signal.Signals) -> str:
    if pid is None:
        return ""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
        return f"process {pid}"
    return ""


_CAUSES: Final[dict[str, Callable[[Fault, Victims], str]]] = {
    "kill apply worker": _kill_apply,
    "kill sync worker": _kill_sync,
    "kill Spark's Python daemons": _kill_python_daemons,
    "kill Spark's Python workers": _kill_python_workers,
    "kill at a place": _at_place,
    "error at a place": _at_place,
    "delay at a place": _at_place,
    "freeze apply worker": _freeze_apply,
    "freeze lake server": _freeze_lake,
    "cut connections": _cut,
    "stall connections": _stall,
    "disk full": _disk_full,
    "slow machine": _slow_machine,
    "slow storage": _slow_storage,
    "kill launcher": _kill_launcher,
    "kill fork server": _kill_fork_server,
    "kill lake server": _kill_lake,
    "restart publisher": _restart_publisher,
    "crash publisher": _crash_publisher,
}
