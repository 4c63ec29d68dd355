"""Is the launcher alive, and is everything ready? For ``/livez``, ``/readyz`` and ``pgsub health``.

*Alive* asks the launcher alone: whoever gets no answer should start pgsub again. A publisher or a
lake that is down is no reason for that. *Ready* asks more: the launcher is past its start, the lake
server answers, and every enabled subscription has a worker or a stored error that says why not.

The text is Kubernetes': a line per check with ``[+]`` or ``[-]``. The text names subscriptions,
processes and SQLSTATEs; the words of an error stand in ``pgsub status`` only, because the listener
may be open to a network.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from catalog.errcodes import ReplicationError
from catalog.namespace import printable
from catalog.store_sqlite import CatalogStore
from config.monitor_limits import (
    HEALTH_ANSWER_SECONDS,
    LAKE_PROBE_SECONDS,
)
from workers.process.launcher_client import LauncherStatus, query_launcher
from workers.process.worker_slots import LogicalRepWorker, is_wanted


@dataclass(frozen=True, slots=True)
class Check:
    """One question and its answer."""

    name: str
    ok: bool
    text: str


@dataclass(frozen=True, slots=True)
class Health:
    """All checks of one kind, ``livez`` or ``readyz``."""

    kind: str
    checks: Sequence[Check]

    @property
    def ok(self) -> bool:
        """True if every check passed."""
        return all(check.ok for check in self.checks)

    def report(self, *, verbose: bool = True) -> str:
        """The answer for people; without ``verbose`` a healthy answer is one word."""
        if self.ok and not verbose:
            return "ok\n"
        lines = [f"[{'+' if each.ok else '-'}]{each.name} {each.text}" for each in self.checks]
        lines.append(f"{self.kind} check {'passed' if self.ok else 'failed'}")
        return printable("\n".join(lines)) + "\n"


def liveness(data_dir: Path) -> Health:
    """Does the launcher's loop answer?"""
    check, _ = _ask_launcher(data_dir)
    return Health("livez", [check])


def readiness(
    data_dir: Path,
    store: CatalogStore,
    lake_answers: Callable[[str], bool] | None = None,
) -> Health:
    """Can everything work? ``lake_answers`` is for the tests."""
    check, status = _ask_launcher(data_dir)
    checks = [check]
    if status is not None:
        checks += _ready_checks(status, store, lake_answers or accepts_connections)
    return Health("readyz", checks)


def _ask_launcher(data_dir: Path) -> tuple[Check, LauncherStatus | None]:
    try:
        status = query_launcher(data_dir, HEALTH_ANSWER_SECONDS)
    except ReplicationError as error:
        return Check("launcher", False, f"does not answer: SQLSTATE {error.code}"), None
    if status is None:
        return Check("launcher", False, "is not running on this data directory"), None
    return Check("launcher", True, f"answers, PID {status.pid}"), status


def _ready_checks(
    status: LauncherStatus, store: CatalogStore, lake_answers: Callable[[str], bool]
) -> Iterator[Check]:
    yield Check("phase", status.phase == "running", f"is {status.phase}")
    url = status.lake_url
    if url is None:
        yield Check("lake", False, "server is not running")
    else:
        found = lake_answers(url)
        yield Check("lake", found, "server accepts connections" if found else "server is silent")
    try:
        yield from subscription_checks(status.workers, store)
    except ReplicationError as error:
        yield Check("catalog", False, f"cannot be read: SQLSTATE {error.code}")


def subscription_checks(
    running: Sequence[LogicalRepWorker], store: CatalogStore
) -> Iterator[Check]:
    """Has every enabled subscription a worker, or an error that says why not?"""
    errors = {each.subid: each.sqlstate for each in store.last_errors() if not each.relid}
    workers = {row.subid: row.pid for row in running if not row.relid and row.attached}
    for sub in store.subscriptions():
        if not is_wanted(sub):
            continue
        name = f'subscription "{sub.subname}"'
        error = f"SQLSTATE {errors[sub.oid]}, see pgsub status" if sub.oid in errors else ""
        if sub.oid in workers:
            last = f"; last error {error}" if error else ""
            yield Check(name, True, f"has an apply worker, PID {workers[sub.oid]}{last}")
        elif error:
            yield Check(name, True, f"has no apply worker: {error}")
        else:
            yield Check(name, False, "has no apply worker, and no error says why")


_SPARK_CONNECT: Final = 15002
"""Spark Connect's port where a URL names none."""


def accepts_connections(url: str) -> bool:
    """Does the host of a Spark Connect URL accept connections?"""
    found = urlsplit(url)
    try:
        address = (found.hostname or "", found.port or _SPARK_CONNECT)
        socket.create_connection(address, LAKE_PROBE_SECONDS).close()
    except (OSError, ValueError):
        return False
    return True
