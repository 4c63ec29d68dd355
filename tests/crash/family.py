"""A ``pgsub`` family whose processes can be stopped at named places, looked at without commands.

What a command would take a second to say, the launcher is asked for directly here: a crash test
asks often.
"""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil

from catalog.errcodes import ConnectionFailure
from catalog.pg_subscription_rel import SubscriptionRel
from catalog.store_sqlite import CatalogStore
from tests.crash.failpoint_files import Failpoints
from tests.fix_lake import Lake
from tests.fix_publisher import Database
from tests.harness import SETTINGS, Pgsub
from tests.lake.lake_stack import LakePgsub, LakeStack
from tests.waiting import wait_until
from workers.process.failpoints import ENVIRONMENT
from workers.process.launcher_client import LauncherStatus, query_launcher

FAMILY_SETTINGS = {
    **SETTINGS,
    "max_logical_replication_workers": 16,
    "max_sync_workers_per_subscription": 6,
    "copy_range_bytes": "256kB",
    "lake_server_memory": "1GB",
}


class Family:
    """One data directory, its launcher, its lake server and the workers.

    With ``lake`` the server is that one, which is nobody's child and lives on when they die. With
    ``stack`` the tables are in its store.
    """

    def __init__(
        self,
        data_dir: Path,
        settings: Mapping[str, Any] = FAMILY_SETTINGS,
        lake: Lake | None = None,
        *,
        stack: LakeStack | None = None,
        format_version: int = 2,
        writer: str = "auto",
    ) -> None:
        self.failpoints = Failpoints(data_dir.parent / "failpoints")
        self.stack = stack
        env = {ENVIRONMENT: str(self.failpoints.directory)}
        self.pgsub = (
            LakePgsub(data_dir, env, catalog=stack.direct_keys())
            if stack
            else Pgsub(data_dir, env, lake.data_dir / "lake" if lake else None)
        )
        self.subscriptions: dict[str, dict[str, Any]] = {}
        self._settings = dict(settings)
        self._common: dict[str, Any] = {
            "settings": self._settings,
            "lake": {"format_version": format_version, "writer": writer},
        }
        if lake:
            self._common["spark"] = {"remote": lake.url}
        if stack:
            self._common["lake"]["catalog"] = stack.catalog_keys()

    # -- commands ------------------------------------------------------------------------------

    def start(self) -> None:
        """``pgsub up`` with every subscription there is; returns when all is running."""
        content = {"subscriptions": self.subscriptions, **self._common}
        self.pgsub.start("up", str(self.pgsub.file(content, "up.yaml")))
        wait_until(self._runs, 240, self.log_tail)

    def configure(self, *, writer: str = "auto", **values: str) -> None:
        """Other settings, beside those it was made with; by SIGHUP. Nothing: those alone again.

        ``writer`` is ``lake.writer``.
        """
        lake = {**self._common["lake"], "writer": writer}
        self._common |= {"settings": {**self._settings, **values}, "lake": lake}
        self.pgsub.reload({"subscriptions": self.subscriptions, **self._common})

    def _runs(self) -> bool:
        assert self.pgsub.launcher.status() != psutil.STATUS_ZOMBIE, self.log_tail()
        try:
            status = query_launcher(self.pgsub.data_dir)
        except ConnectionFailure:  # on a busy machine it may be too slow to answer
            return False
        return status is not None and status.phase == "running"

    def create(
        self,
        name: str,
        connection: str,
        publications: Sequence[str],
        tables: Mapping[str, Mapping[str, Any]] | None = None,
        sync_slot: str | None = None,
        messages_to: str | None = None,
        refresh: str | None = None,
        **options: Any,
    ) -> None:
        """``pgsub create``; later starts of the family have it in their file."""
        entry: dict[str, Any] = {"connection": connection, "publication": list(publications)}
        if options:
            entry["with"] = options
        if tables:
            entry["tables"] = {table: dict(words) for table, words in tables.items()}
        if sync_slot:
            entry["sync_slot"] = sync_slot
        if messages_to:
            entry["messages_to"] = messages_to
        if refresh:
            entry["refresh"] = refresh
        self.pgsub.command("create", str(self.file_of({name: entry})))
        self.subscriptions[name] = entry

    def file_of(self, entries: Mapping[str, Mapping[str, Any]]) -> Path:
        """A file with these subscriptions, named for the first, and the family's settings."""
        content = {"subscriptions": dict(entries), **self._common}
        return self.pgsub.file(content, f"{next(iter(entries))}.yaml")

    def drop(self, name: str) -> None:
        """``pgsub drop``."""
        del self.subscriptions[name]
        self.pgsub.drop(name)

    def forget_tables(self, *schemas: str) -> None:
        """The lake's catalog knows no table of these schemas any more; DROP TABLE takes longer."""
        if self.stack:
            self.stack.forget_tables(*schemas)
            return
        with closing(sqlite3.connect(self.pgsub.lake_catalog_file())) as catalog, catalog:
            for schema in schemas:
                catalog.execute("DELETE FROM iceberg_tables WHERE table_namespace = ?", (schema,))

    # -- what there is ---------------------------------------------------------------------------

    def status(self) -> LauncherStatus:
        """What the launcher says."""
        status = query_launcher(self.pgsub.data_dir)
        assert status is not None, self.log_tail()
        return status

    def subid(self, name: str) -> int:
        """A subscription's oid."""
        store = CatalogStore.open(self.pgsub.data_dir)
        try:
            sub = store.subscription_by_name(name)
            assert sub is not None, name
            return sub.oid
        finally:
            store.close()

    def states(self, name: str) -> dict[str, str]:
        """State letter of each table of a subscription."""
        subid = self.subid(name)
        store = CatalogStore.open(self.pgsub.data_dir)
        try:
            return {rel.relname: rel.srsubstate.value for rel in store.rels(subid)}
        finally:
            store.close()

    def rel(self, name: str) -> SubscriptionRel:
        """The row of a subscription's only table."""
        subid = self.subid(name)
        store = CatalogStore.open(self.pgsub.data_dir)
        try:
            (rel,) = store.rels(subid)
            return rel
        finally:
            store.close()

    def table_of(self, pid: int) -> str | None:
        """The table (``schema.name``) that a sync worker synchronises."""
        for worker in self.status().workers:
            if worker.pid == pid and worker.relid:
                store = CatalogStore.open(self.pgsub.data_dir)
                try:
                    rel = store.rel(worker.subid, worker.relid)
                    return f"{rel.nspname}.{rel.relname}" if rel else None
                finally:
                    store.close()
        return None

    def apply_pid(self, name: str) -> int | None:
        """The apply worker's process, if one runs."""
        subid = self.subid(name)
        for worker in self.status().workers:
            if worker.subid == subid and not worker.relid and worker.pid:
                return worker.pid
        return None

    def sync_pids(self, name: str) -> list[int]:
        """The sync workers' processes."""
        subid = self.subid(name)
        rows = self.status().workers
        return [row.pid for row in rows if row.subid == subid and row.relid and row.pid]

    # -- ends ------------------------------------------------------------------------------------

    def kill(self, pid: int) -> None:
        """SIGKILL one process of the family, and wait until it is gone."""
        assert pid in {process.pid for process in self.pgsub.family()}, f"{pid} is not ours"
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not _lives(pid), 10, f"process {pid} ends")

    def kill_lake_server(self) -> None:
        """SIGKILL the JVM."""
        pid = self.status().lake_pid
        assert pid is not None, "no lake server runs"
        self.kill(pid)

    def kill_launcher(self) -> None:
        """SIGKILL the launcher; the others follow by themselves."""
        self.pgsub.kill()

    def log_size(self) -> int:
        """Where the log ends now, for ``log_since``."""
        path = self.log_file
        return path.stat().st_size if path.exists() else 0

    @property
    def log_file(self) -> Path:
        """What launcher and workers wrote to the launcher's standard error."""
        return self.pgsub.log_file

    def log_since(self, offset: int) -> str:
        """What was logged after ``log_size`` said ``offset``."""
        with self.log_file.open("rb") as file:
            file.seek(offset)
            return file.read().decode(errors="replace")

    def wait_logged(self, text: str, since: int, timeout: float, times: int = 1) -> None:
        """Wait until the log says it, after ``log_size`` said ``since``."""
        wait_until(
            lambda: self.log_since(since).count(text) >= times,
            timeout,
            lambda: f"{text!r} in the log:\n{self.log_tail()}",
        )

    def log_tail(self) -> str:
        """The last lines of the log."""
        return self.pgsub.log_tail(60)


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_confirmed(
    family: Family, database: Database, *names: str, lsn: str | None = None, timeout: float = 240.0
) -> None:
    """Until the slots of the subscriptions are confirmed up to a position (default: now's)."""
    target = lsn or database.lsn()
    confirmed = (
        "SELECT count(*) FROM pg_replication_slots"
        " WHERE slot_name = ANY(%s) AND confirmed_flush_lsn >= %s::pg_lsn"
    )
    args = (list(names), target)
    wait_until(
        lambda: database.value(confirmed, args) == len(names),
        timeout,
        lambda: f"{names} confirm {target}; the log ends:\n{family.log_tail()}",
    )
