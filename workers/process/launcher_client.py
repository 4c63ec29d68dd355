"""Ask the launcher of a data directory, as a command does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from config.limits import LAUNCHER_QUERY_SECONDS, LAUNCHER_REPLY_SECONDS
from config.monitor_limits import PYTHON_ASK_SECONDS
from workers.process.launcher_socket import ask
from workers.process.worker_slots import LogicalRepWorker


@dataclass(frozen=True, slots=True)
class LauncherStatus:
    """The state of a running launcher.

    ``phase`` is ``starting`` until the lake server runs and the configuration file is applied, then
    ``running``, at the end ``stopping``. ``start_time`` is in microseconds since 1970. ``totals``
    has a row per subscription with the work of ended workers (``work_done``).
    """

    pid: int
    start_time: int
    phase: str
    lake_url: str | None = field(repr=False)  # the URL contains the server's token
    lake_pid: int | None
    workers: tuple[LogicalRepWorker, ...]
    totals: tuple[Mapping[str, Any], ...] = ()
    lake_restarts: int = 0


def query_launcher(
    data_dir: Path, timeout: float = LAUNCHER_QUERY_SECONDS
) -> LauncherStatus | None:
    """Ask for the launcher's state; None if no launcher runs, 08006 if there is no answer."""
    reply = ask(data_dir, {"op": "status"}, timeout)
    if reply is None:
        return None
    return LauncherStatus(
        pid=reply["pid"],
        start_time=reply["start_time"],
        phase=reply["phase"],
        lake_url=reply["lake_url"],
        lake_pid=reply["lake_pid"],
        workers=tuple(LogicalRepWorker.from_json(row) for row in reply["workers"]),
        totals=tuple(reply["totals"]),
        lake_restarts=reply["lake_restarts"],
    )


def notify_launcher(data_dir: Path, subid: int | None = None, *, wait: float | None = None) -> bool:
    """Tell the launcher that the catalog changed (``ApplyLauncherWakeup``).

    Returns False if no launcher runs. With ``wait`` the call returns when each worker of ``subid``
    has read the catalog at a batch boundary, or has ended; raises 55006 after ``wait`` seconds.
    """
    request = {"op": "notify", "subid": subid, "wait": wait}
    return ask(data_dir, request, LAUNCHER_QUERY_SECONDS + (wait or 0)) is not None


def report_broken_lake(data_dir: Path) -> bool:
    """Report that the lake server cannot go on (``LauncherLink.lake_broken``).

    Returns False if no launcher runs.
    """
    return ask(data_dir, {"op": "lake_broken"}, LAUNCHER_QUERY_SECONDS) is not None


def report_lake_alive(data_dir: Path, lake_pid: int, health: Mapping[str, int]) -> bool:
    """Report an answer of the lake server and what the server uses (``lake_budget.Health``).

    Returns False if no launcher runs.
    """
    request = {"op": "lake_alive", "lake_pid": lake_pid, "health": dict(health)}
    return ask(data_dir, request, LAUNCHER_QUERY_SECONDS) is not None


def fork_spark_python(data_dir: Path, path: Path) -> bool:
    """Have the launcher fork Spark's Python, which connects to the socket at ``path``.

    Returns False if no launcher runs, or while an earlier one is not forked yet; raises 08006 after
    PYTHON_ASK_SECONDS without an answer.
    """
    request = {"op": "fork_python", "socket": str(path)}
    reply = ask(data_dir, request, PYTHON_ASK_SECONDS)
    return reply is not None and bool(reply["forked"])


def stop_workers(
    data_dir: Path, subid: int, relid: int | None = None, *, wait: float = LAUNCHER_REPLY_SECONDS
) -> bool:
    """``logicalrep_worker_stop``: stop the workers of a subscription, or one (relid 0: apply).

    Returns when the workers have ended; False if no launcher runs. The caller first makes the
    workers unwanted: the launcher restarts the apply worker of an enabled subscription. Raises
    55006 after ``wait`` seconds.
    """
    request = {"op": "stop_workers", "subid": subid, "relid": relid, "wait": wait}
    return ask(data_dir, request, LAUNCHER_QUERY_SECONDS + wait) is not None


def stop_launcher(data_dir: Path, timeout: float = LAUNCHER_QUERY_SECONDS) -> bool:
    """Ask the launcher to stop with all its processes, as SIGTERM does; returns at once.

    Returns False if no launcher runs.
    """
    return ask(data_dir, {"op": "stop_launcher"}, timeout) is not None
