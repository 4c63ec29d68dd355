"""What commands ask the launcher."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from config.limits import LAUNCHER_QUERY_SECONDS, LAUNCHER_REPLY_SECONDS
from workers.process.launcher_socket import ask
from workers.process.worker_slots import LogicalRepWorker

# What a command asks the launcher


@dataclass(frozen=True, slots=True)
class LauncherStatus:
    """What a running launcher says of itself.

    ``phase`` is ``starting`` until the lake is up and the configuration file is applied, then
    ``running``, at the end ``stopping``. ``start_time`` is in microseconds since 1970.
    """

    pid: int
    start_time: int
    phase: str
    lake_url: str | None = field(repr=False)  # it holds the server's token
    lake_pid: int | None
    workers: tuple[LogicalRepWorker, ...]


def query_launcher(
    data_dir: Path, timeout: float = LAUNCHER_QUERY_SECONDS
) -> LauncherStatus | None:
    """How the launcher of a data directory is; None if none runs, 08006 if it does not answer."""
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
    )


def notify_launcher(data_dir: Path, subid: int | None = None, *, wait: float | None = None) -> bool:
    """The catalog was changed: look at it now (``ApplyLauncherWakeup``). False if none runs.

    With ``wait`` it returns when each worker of ``subid`` has read the catalog at a batch boundary
    or is gone; 55006 if that takes longer than so many seconds.
    """
    request = {"op": "notify", "subid": subid, "wait": wait}
    return ask(data_dir, request, LAUNCHER_QUERY_SECONDS + (wait or 0)) is not None


def report_broken_lake(data_dir: Path) -> bool:
    """The lake server cannot go on (``LauncherLink.lake_broken``). False if no launcher runs."""
    return ask(data_dir, {"op": "lake_broken"}, LAUNCHER_QUERY_SECONDS) is not None


def stop_workers(
    data_dir: Path, subid: int, relid: int | None = None, *, wait: float = LAUNCHER_REPLY_SECONDS
) -> bool:
    """``logicalrep_worker_stop``: stop a subscription's workers, or one (relid 0: apply).

    Returns when they are gone. The caller has seen to it that they are not wanted any more: the
    launcher starts the apply worker of an enabled subscription again. False if no launcher runs;
    55006 if it takes longer than ``wait`` seconds.
    """
    request = {"op": "stop_workers", "subid": subid, "relid": relid, "wait": wait}
    return ask(data_dir, request, LAUNCHER_QUERY_SECONDS + wait) is not None


def stop_launcher(data_dir: Path, timeout: float = LAUNCHER_QUERY_SECONDS) -> bool:
    """Ask the launcher to stop its family, as SIGTERM does; returns at once. False if none runs."""
    return ask(data_dir, {"op": "stop_launcher"}, timeout) is not None
