"""What goes wrong during a run, and when: planned from the seed, then done to real processes.

A plan is data; ``cause`` does one fault and undoes it again where it is one that passes. Faults
that take away what everything needs (launcher, lake server, publisher) are rarer, because coming
back from them takes most of a run's time.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Lock
from typing import Final

import psutil

from subscriber.publisher import EmbeddedPublisher
from tests.crash.family import Family
from tests.crash.proxy import Proxy
from workers.failpoints import APPLY, FENCE, READY, TABLESYNC, UNDO

PLACES: Final = (*APPLY, *FENCE, *READY, *TABLESYNC, *UNDO)

LIGHT: Final = (
    "kill apply worker",
    "kill sync worker",
    "kill at a place",
    "error at a place",
    "delay at a place",
    "freeze apply worker",
    "freeze lake server",
    "cut connections",
    "stall connections",
    "disk full",
)
HEAVY: Final = ("kill launcher", "kill lake server", "restart publisher", "crash publisher")

_DISK_LEFT: Final = 4096
"""Bytes a file may have while the disk is full."""


@dataclass(frozen=True, slots=True)
class Fault:
    """``after`` so many transactions; ``seconds`` for what passes; ``place`` of a failpoint."""

    after: int
    kind: str
    seconds: float = 0.0
    place: str = ""

    def __str__(self) -> str:
        what = f"{self.kind} {self.place}".strip()
        return f"after {self.after}: {what}" + (f" for {self.seconds:g} s" if self.seconds else "")


def plan_faults(chance: random.Random, transactions: int) -> list[Fault]:
    """Three to six faults, of which at most one is heavy, in the order of their time."""
    kinds = [chance.choice(LIGHT) for _ in range(chance.randint(3, 5))]
    if chance.random() < 0.4:
        kinds.append(chance.choice(HEAVY))
    faults = []
    for kind in kinds:
        passing = kind.split()[0] in ("freeze", "stall", "disk", "delay")
        faults.append(
            Fault(
                chance.randrange(transactions),
                kind,
                round(chance.uniform(0.3, 6.0), 1) if passing else 0.0,
                chance.choice(PLACES) if kind.endswith("a place") else "",
            )
        )
    return sorted(faults, key=lambda fault: fault.after)


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
    """Do it, wait as long as it lasts, undo it; a word on what was hit."""
    return _CAUSES[fault.kind](fault, victims)


def _kill_apply(_fault: Fault, victims: Victims) -> str:
    return _signal(victims.family.apply_pid(victims.subscription), signal.SIGKILL)


def _kill_sync(_fault: Fault, victims: Victims) -> str:
    pids = victims.family.sync_pids(victims.subscription)
    return _signal(pids[0] if pids else None, signal.SIGKILL)


def _at_place(fault: Fault, victims: Victims) -> str:
    action = {"kill": "kill", "error": "raise", "delay": f"delay {fault.seconds}"}
    victims.family.failpoints.arm(fault.place, action=action[fault.kind.split()[0]])
    return "armed"


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
    return f"{victims.proxy.cut()} connections"


def _stall(fault: Fault, victims: Victims) -> str:
    with victims.proxy.stalled():
        victims.ended.wait(fault.seconds)
    return "all connections"


def _disk_full(fault: Fault, victims: Victims) -> str:
    with full_disk(victims.family.pgsub.family):
        victims.ended.wait(fault.seconds)
    return "launcher, lake server and workers"


@contextmanager
def full_disk(processes: Callable[[], list[psutil.Process]]) -> Iterator[None]:
    """No file of these processes, and of those they start, may grow.

    A limit on the size of files fails as a full disk does, in the middle of a write too, and needs
    no file system of its own.
    """
    limited = {process.pid: process for process in processes()}
    try:
        for process in limited.values():
            _limit(process, _DISK_LEFT)
        yield
    finally:
        # Children that were started meanwhile have inherited the limit.
        with suppress(psutil.NoSuchProcess):
            limited |= {process.pid: process for process in processes()}
        for process in limited.values():
            _limit(process, psutil.RLIM_INFINITY)


def _limit(process: psutil.Process, size: int) -> None:
    with suppress(psutil.NoSuchProcess, ProcessLookupError):
        process.rlimit(psutil.RLIMIT_FSIZE, (size, psutil.RLIM_INFINITY))


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
        return "nobody"
    with suppress(ProcessLookupError):
        os.kill(pid, number)
        return f"process {pid}"
    return "nobody"


_CAUSES: Final[dict[str, Callable[[Fault, Victims], str]]] = {
    "kill apply worker": _kill_apply,
    "kill sync worker": _kill_sync,
    "kill at a place": _at_place,
    "error at a place": _at_place,
    "delay at a place": _at_place,
    "freeze apply worker": _freeze_apply,
    "freeze lake server": _freeze_lake,
    "cut connections": _cut,
    "stall connections": _stall,
    "disk full": _disk_full,
    "kill launcher": _kill_launcher,
    "kill lake server": _kill_lake,
    "restart publisher": _restart_publisher,
    "crash publisher": _crash_publisher,
}
