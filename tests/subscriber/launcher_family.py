"""A data directory, its catalog, and a launcher process on it that the test starts and ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from catalog.pg_subscription import SubCreate, Subscription
from catalog.store_sqlite import CatalogStore
from tests.processes import fork_server_of
from tests.waiting import wait_until
from workers.process.launcher_client import LauncherStatus, query_launcher
from workers.process.worker_slots import LogicalRepWorker

ROOT = Path(__file__).resolve().parents[2]

SETTINGS = {"wal_retrieve_retry_interval": "300ms"}


class Family:
    """Launchers of one data directory; use as a context manager."""

    def __init__(self, data_dir: Path, **options: Any) -> None:
        self.data_dir = data_dir
        self.options = {"data_dir": str(data_dir), "settings": SETTINGS, **options}
        self.store = CatalogStore.open(data_dir)
        self.launchers: list[subprocess.Popen[str]] = []
        self._seen: dict[int, psutil.Process] = {}

    def __enter__(self) -> Family:
        return self

    def __exit__(self, *_: object) -> None:
        self.descendants()
        for launcher in self.launchers:
            launcher.kill()
        for process in self._seen.values():
            if process.is_running():
                process.kill()
        for launcher in self.launchers:
            launcher.communicate()
        self.store.close()

    def subscribe(self, *names: str) -> list[int]:
        """Make ready, enabled subscriptions; their oids."""
        return [
            self.store.insert_subscription(
                Subscription(
                    name,
                    "host=nowhere",
                    ("p",),
                    subslotname="slot",
                    subuuid=str(uuid.uuid4()),
                    subcreate=SubCreate.READY,
                )
            ).oid
            for name in names
        ]

    def begin(self, *, inside: Sequence[str] = (), **options: Any) -> subprocess.Popen[str]:
        """Start a launcher and return at once; ``inside`` is the command that runs it."""
        launcher = subprocess.Popen(
            [
                *inside,
                # As a script, as the command is: the current directory counts for nothing.
                *(sys.executable, str(ROOT / "tests/subscriber/fake_launcher.py")),
                json.dumps({**self.options, **options}),
            ],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=options.get("cwd", ROOT),
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self.launchers.append(launcher)
        return launcher

    def start(self, *, phase: str = "running", **options: Any) -> subprocess.Popen[str]:
        """Start a launcher and wait until it is running."""
        launcher = self.begin(**options)
        wait_until(lambda: self.status_of(launcher, phase), 30, self.log)
        return launcher

    def status_of(self, launcher: subprocess.Popen[str], phase: str) -> LauncherStatus | None:
        """The status, if this launcher is in that phase."""
        assert launcher.poll() is None, self.log()
        status = query_launcher(self.data_dir, timeout=2.0)
        if status is None or status.pid != launcher.pid or status.phase != phase:
            return None
        return status

    def status(self) -> LauncherStatus:
        """The running launcher's status."""
        status = query_launcher(self.data_dir)
        assert status is not None, self.log()
        return status

    def worker(self, subid: int, relid: int = 0) -> LogicalRepWorker | None:
        """An attached worker."""
        for row in self.status().workers:
            if (row.subid, row.relid) == (subid, relid) and row.attached:
                return row
        return None

    def await_worker(self, subid: int, relid: int = 0, *, after: int = 0) -> LogicalRepWorker:
        """Wait for an attached worker of a generation above ``after``."""

        def found() -> LogicalRepWorker | None:
            row = self.worker(subid, relid)
            return row if row is not None and row.generation > after else None

        row = wait_until(found, 60, self.log)
        assert row is not None
        return row

    def await_gone(self, subid: int) -> None:
        """Wait until a subscription has no worker."""
        wait_until(lambda: all(row.subid != subid for row in self.status().workers), 20, self.log)

    def kill(self, pid: int | None, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a process that the status named."""
        assert pid is not None
        os.kill(pid, number)

    def descendants(self) -> list[psutil.Process]:
        """Everything that lives below the launchers."""
        found = [
            child
            for launcher in self.launchers
            if launcher.poll() is None
            for child in psutil.Process(launcher.pid).children(recursive=True)
        ]
        self._seen.update({process.pid: process for process in found})
        return found

    def fork_server(self) -> psutil.Process:
        """The last launcher's child that forks the workers."""
        found = fork_server_of(psutil.Process(self.launchers[-1].pid))
        assert found is not None, self.log()
        return found

    def log(self) -> str:
        """The end of the log file."""
        path = self.data_dir / "log" / "pgsub.log"
        return path.read_text()[-3000:] if path.exists() else "(no log)"


def reported(family: Family, subid: int, name: str, value: Any) -> LogicalRepWorker:
    """Wait until the apply worker has reported something."""

    def found() -> LogicalRepWorker | None:
        row = family.worker(subid)
        return row if row is not None and getattr(row, name) == value else None

    return wait_until(found, 20, family.log)
