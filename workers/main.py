"""The start of a worker process: attach to the launcher, run, and end with an exit status.

The launcher reads the exit status and decides when the worker starts again.
"""

from __future__ import annotations

import argparse
import logging
import sys
from contextlib import suppress
from pathlib import Path

from catalog import remedies
from catalog.errcodes import (
    AdminShutdown,
    LakeBroken,
    ReplicationError,
    ReplicationGap,
    RequiredProcessGone,
    SerializationFailure,
)
from catalog.store_sqlite import CatalogStore
from config.guc import stored_settings
from workers.changes.key_conflict import KeyConflict
from workers.process import log as worker_log
from workers.process.launcher_link import LauncherLink
from workers.process.retry import retries_steadily
from workers.process.worker_exit import EXIT_DONE, EXIT_ERROR, EXIT_GAP, EXIT_REPEATED, WorkerExit
from workers.process.worker_process import WorkerProcess

log = logging.getLogger(__name__)


def main(argv: list[str] | None = None) -> int:
    """Run the worker of the launcher's arguments, and return the exit status."""
    parser = argparse.ArgumentParser(prog="pgsub worker")
    parser.add_argument("kind", choices=["apply", "tablesync"])
    parser.add_argument("--data-dir", type=Path, required=True)
    for name in ("--subid", "--relid", "--slot", "--generation"):
        parser.add_argument(name, type=int, required=True)
    args = parser.parse_args(argv)
    try:
        worker_log.setup(f"{args.kind} {args.subid}/{args.relid}", args.data_dir)
        process = _attach(args)
        status = _run(process)
        process.close()
    except Exception as error:
        return _failed(error, args.subid, args.relid)
    return status


def _attach(args: argparse.Namespace) -> WorkerProcess:
    """Take the reserved worker slot. Before, no process may rely on the worker."""
    link = LauncherLink.connect(args.data_dir, args.slot, args.generation)
    store = CatalogStore.open(args.data_dir)
    process = WorkerProcess(
        data_dir=args.data_dir,
        subid=args.subid,
        relid=args.relid,
        generation=args.generation,
        store=store,
        link=link,
        settings=stored_settings(store.settings()),
    )
    link.attach()
    return process


def _run(process: WorkerProcess) -> int:
    from workers.apply.worker import apply_worker_main
    from workers.sync.worker import table_sync_worker_main

    try:
        if process.relid:
            table_sync_worker_main(process)
        else:
            apply_worker_main(process)
    except WorkerExit as reason:
        log.info("action=exit subid=%d relid=%d %s", process.subid, process.relid, reason)
    except AdminShutdown:
        log.info("action=exit subid=%d relid=%d told to stop", process.subid, process.relid)
    except Exception as error:
        shown = _for_people(error)
        if process.remember_error(shown) or not isinstance(shown, ReplicationGap):
            worker_log.report(shown, subid=process.subid, relid=process.relid)
        if isinstance(error, LakeBroken):
            with suppress(RequiredProcessGone):
                process.link.lake_broken()
        nobody_at_fault = isinstance(error, RequiredProcessGone | SerializationFailure)
        if process.applying and not nobody_at_fault:
            count_error(process, error)
            if disable_on_error(process):
                return EXIT_DONE  # ENABLE then starts the worker at once
        return _status(process, shown)
    return EXIT_DONE


def _status(process: WorkerProcess, error: ReplicationError) -> int:
    """The exit status of a worker that an error ends."""
    if isinstance(error, ReplicationGap):
        return EXIT_GAP
    repeated = process.repeats_error and not retries_steadily(error.code)
    return EXIT_REPEATED if repeated else EXIT_ERROR


def _failed(error: Exception, subid: int, relid: int) -> int:
    """Log an error before the worker's work began, and return the exit status."""
    worker_log.report(_for_people(error), subid=subid, relid=relid)
    return EXIT_ERROR


def _for_people(error: Exception) -> ReplicationError:
    """The error for the log and the views, with a hint."""
    return remedies.stream(worker_log.unexpected(error))


def count_error(process: WorkerProcess, error: Exception) -> None:
    """``pgstat_report_subscription_error``: count the error, and the conflict if there is one."""
    counters = {"sync_error_count" if process.relid else "apply_error_count": 1}
    if isinstance(error, KeyConflict):
        counters[error.conflict.column] = 1
    try:
        process.store.count_for_stats(process.subid, **counters)
    except ReplicationError:  # perhaps the full disk is the error
        log.debug("action=count_error could not be stored")


def disable_on_error(process: WorkerProcess) -> bool:
    """``DisableSubscriptionAndExit``: with the option set, an error turns the subscription off.

    Return whether the subscription was turned off. As in PostgreSQL, all errors during apply and
    copy count, a lost connection too.
    """
    with process.store.transaction():
        sub = process.store.subscription(process.subid)
        if sub is None or not (sub.subdisableonerr and sub.subenabled):
            return False
        process.store.update_subscription(process.subid, subenabled=False)
    log.info(
        'action=disable_on_error subid=%d subscription "%s" has been disabled because of an error',
        process.subid,
        sub.subname,
    )
    return True


if __name__ == "__main__":
    sys.exit(main())
