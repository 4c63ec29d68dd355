"""A worker process that applies nothing; what it does is in its subscription's name."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from catalog.pg_lsn import LSN
from catalog.store_sqlite import CatalogStore
from workers.process import log as server_log
from workers.process.launcher_link import LauncherLink
from workers.process.worker_exit import EXIT_GAP, EXIT_REPEATED

NAP = 10.0


def steady(link: LauncherLink, _subid: int, _relid: int) -> int:
    """Works until told to stop; acknowledges catalog changes."""
    while not link.shutdown_requested.is_set():
        link.acknowledge_catalog(link.catalog_change())
        link.latch.wait(NAP)
    return 0


def fails(_link: LauncherLink, _subid: int, _relid: int) -> int:
    """Ends with an error at once."""
    return 1


def lost(_link: LauncherLink, _subid: int, _relid: int) -> int:
    """Ends because of a gap."""
    return EXIT_GAP


def repeats(_link: LauncherLink, _subid: int, _relid: int) -> int:
    """Ends with the error of the worker before."""
    return EXIT_REPEATED


def quits(link: LauncherLink, _subid: int, _relid: int) -> int:
    """Ends on purpose when its subscription was altered."""
    while link.catalog_change() is None and not link.shutdown_requested.is_set():
        link.latch.wait(NAP)
    return 0


def stubborn(link: LauncherLink, subid: int, relid: int) -> int:
    """Never ends by itself."""
    link.report(phase="stubborn")
    while True:
        link.latch.wait(NAP)


def works(link: LauncherLink, _subid: int, _relid: int) -> int:
    """Applies three transactions, and waits."""
    link.report(work={"transactions": 3, "rows": {"insert": 5}}, applying_commit_time=7)
    while not link.shutdown_requested.is_set():
        link.latch.wait(NAP)
    return 0


def lake(link: LauncherLink, _subid: int, _relid: int) -> int:
    """Reports where the lake is, and where rows are staged for it."""
    while not link.shutdown_requested.is_set():
        link.report(phase=link.lake_url(), progress={"staging": link.staging})
        link.latch.wait(NAP)
    return 0


def syncs(link: LauncherLink, subid: int, relid: int) -> int:
    """Hands tables 1 to 3 over from sync workers: w, c, s."""
    return _sync(link, subid, relid) if relid else _apply(link, subid)


def _apply(link: LauncherLink, subid: int) -> int:
    done: set[int] = set()
    refused = 0
    while not link.shutdown_requested.is_set():
        for relid in {1, 2, 3} - done:
            worker = link.find(subid, relid)
            if worker is None:
                refused += not link.launch_sync(subid, relid)
            elif worker.relstate == "w" and worker.relstate_lsn is not None:
                link.set_relstate(subid, relid, "c", LSN(worker.relstate_lsn + 1))
            elif worker.relstate == "s":
                done.add(relid)
                link.report(progress={"done": sorted(done), "refused": refused})
        link.latch.wait(NAP)
    return 0


def _sync(link: LauncherLink, subid: int, relid: int) -> int:
    link.set_relstate(subid, relid, "w", LSN(0x100))
    while not link.shutdown_requested.is_set():
        own = link.find(subid, relid)
        if own is not None and own.relstate == "c":
            link.set_relstate(subid, relid, "s", own.relstate_lsn)
            link.wakeup(subid, 0)
            break
        link.wakeup(subid, 0)
        link.latch.wait(NAP)
    while link.catalog_change() is None and not link.shutdown_requested.is_set():
        link.latch.wait(NAP)  # the apply worker is to see s
    return 0


def crowded(link: LauncherLink, subid: int, relid: int) -> int:
    """Keeps its sync workers, and asks for more than it may have."""
    if not relid:
        got = [link.launch_sync(subid, number) for number in range(1, 5)]
        link.report(progress={"launched": got})
    return steady(link, subid, relid)


def copies(link: LauncherLink, subid: int, relid: int) -> int:
    """Its sync worker is inside a copy, where nobody looks at the catalog."""
    if not relid:
        link.launch_sync(subid, 1)
        return steady(link, subid, relid)
    link.set_relstate(subid, relid, "d", None)
    link.shutdown_requested.wait()
    return 0


def stopsync(link: LauncherLink, subid: int, relid: int) -> int:
    """Stops its sync worker, as one that gives no sign."""
    if relid:
        return steady(link, subid, relid)
    link.launch_sync(subid, 1)
    while link.find(subid, 1) is None and not link.shutdown_requested.is_set():
        link.latch.wait(NAP)
    link.stop_sync(subid, 1)
    link.stop_sync(subid, 2)  # a table without a sync worker
    while link.find(subid, 1) is not None and not link.shutdown_requested.is_set():
        link.latch.wait(NAP)
    link.report(phase="stopped")
    return steady(link, subid, relid)


BEHAVIOURS: dict[str, Callable[[LauncherLink, int, int], int]] = {
    work.__name__: work
    for work in (
        *(steady, works, fails, lost, repeats, quits, stubborn, lake),
        *(syncs, crowded, copies, stopsync),
    )
}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", type=Path)
    for name in ("--subid", "--relid", "--slot", "--generation"):
        parser.add_argument(name, type=int)
    args = parser.parse_args()
    store = CatalogStore.open(args.data_dir)
    sub = store.subscription(args.subid)
    if sub is None:
        return 0
    name = sub.subname.partition("-")[0]
    if name == "silent":
        signal.pause()
    server_log.setup(f"fake {args.subid}/{args.relid}", args.data_dir)
    link = LauncherLink.connect(args.data_dir, args.slot, args.generation)
    link.attach()
    status = BEHAVIOURS[name](link, args.subid, args.relid)
    link.close()
    return status


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)
