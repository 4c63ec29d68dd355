"""A ``Site`` of real things: psycopg's connection, the lake's server, the running launcher."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from catalog.errcodes import LakeBroken, ObjectInUse, ReplicationError
from catalog.pg_subscription import Subscription
from catalog.store_sqlite import CatalogStore
from config.guc import Settings
from config.lake import stored_lake
from config.limits import BATCH_END_SECONDS
from config.load import Config
from subscriber.commands.context import CommandContext, Worker
from subscriber.commands.hold_workers import hold_workers
from subscriber.commands.lake_access import CommandLake
from subscriber.messages import Notice, notice, print_notice
from workers.process.launcher_client import (
    notify_launcher,
    query_launcher,
    report_broken_lake,
    stop_workers,
)
from workers.publisher.interfaces import ReplicationConn
from workers.publisher.password_required import check_connected, check_conninfo


@contextmanager
def open_command_context(
    data_dir: Path,
    store: CatalogStore,
    config: Config,
    *,
    lake_url: str | None = None,
    notify: Callable[[Notice], None] = print_notice,
) -> Iterator[CommandContext]:
    """The context of commands on ``data_dir``; ``lake_url`` if the caller knows the lake's URL.

    A launcher is notified if its lake server turns out to be broken.
    """
    lake = CommandLake(data_dir, store, config, lake_url, on_wait=lambda text: notify(notice(text)))

    def workers() -> Sequence[Worker]:
        status = query_launcher(data_dir)
        return () if status is None else status.workers

    def wake_launcher() -> None:
        notify_launcher(data_dir)

    def wait_until_workers_reload(subid: int) -> None:
        try:
            notify_launcher(data_dir, subid, wait=BATCH_END_SECONDS)
        except ObjectInUse as error:
            error.hint = "The change is stored; it takes effect at the end of the batch in hand."
            raise

    def stop_sync_worker(subid: int, relid: int) -> None:
        stop_workers(data_dir, subid, relid)

    def workers_stopped(subid: int) -> AbstractContextManager[None]:
        return hold_workers(data_dir, subid, wait=BATCH_END_SECONDS, lock=lake.keep_launchers_out)

    try:
        yield CommandContext(
            data_dir=data_dir,
            store=store,
            connect=lambda sub: connect_publisher(sub, config.settings),
            lake=lake.destination,
            lake_tables=lake.tables,
            probe_lake=lake.probe,
            expect_copy=lake.expect_copy,
            workers=workers,
            wake_launcher=wake_launcher,
            wait_until_workers_reload=wait_until_workers_reload,
            stop_sync_worker=stop_sync_worker,
            workers_stopped=workers_stopped,
            notify=notify,
            lake_writer=_lake_writer(store, config),
        )
    except LakeBroken:
        with suppress(ReplicationError):  # the command's error is more important
            report_broken_lake(data_dir)
        raise
    finally:
        lake.close()


def _lake_writer(store: CatalogStore, config: Config) -> str:
    """``lake.writer`` of the command's file, or in force where the file says nothing."""
    if "writer" in config.lake.model_fields_set:
        return config.lake.writer
    return stored_lake(store.settings()).writer


def connect_publisher(sub: Subscription, settings: Settings) -> ReplicationConn:
    """A walsender connection under the subscription's name, like CREATE SUBSCRIPTION's."""
    from workers.publisher import connect

    check_conninfo(sub, settings)
    conn = connect.connect_publisher(sub, sub.subname, lambda: False)
    check_connected(conn, sub, settings)
    return conn
