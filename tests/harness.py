"""``pgsub`` as a user runs it: real processes on a data directory of their own.

Rows are read by pyiceberg, which shares nothing with Spark but the tables, so that what a flow
compares is what any other reader sees.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pyarrow as pa
import yaml

from catalog.store_sqlite import CatalogStore
from config.load import Config, from_stored, load
from tests import commands
from tests.processes import name_of
from tests.twin import in_order
from tests.waiting import wait_until
from workers.parent_death import dying_with_parent
from workers.process.launcher_client import query_launcher

if TYPE_CHECKING:
    from pyiceberg.table import Table

COMMAND = Path(sys.executable).with_name("pgsub")

SETTINGS = {
    "wal_retrieve_retry_interval": "100ms",
    "wal_receiver_status_interval": "1s",
    "max_sync_workers_per_subscription": 2,
    "max_logical_replication_workers": 16,
}


_WITHOUT_THE_RIGHT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE
os.execv(sys.argv[1], sys.argv[1:])
"""


class CommandError(AssertionError):
    """A command ended with a status that was not expected."""


class Pgsub:
    """One data directory, and the family of processes that ``up`` starts on it.

    Commands are forked from a process that has imported everything. ``env`` is added to the
    environment of all. ``lake_dir`` is where a lake server that is not theirs keeps its tables. A
    family that is not ``almighty`` may write only where permissions let it, root's tests or not.
    """

    def __init__(
        self,
        data_dir: Path,
        env: Mapping[str, str] | None = None,
        lake_dir: Path | None = None,
        *,
        almighty: bool = True,
    ) -> None:
        self._almighty = almighty
        self.data_dir = data_dir
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.lake_dir = lake_dir or data_dir / "lake"
        self.scratch = data_dir.parent / f"{data_dir.name}_files"
        self.scratch.mkdir(exist_ok=True)
        self.env = {**os.environ, **(env or {})}
        self.log_file = self.scratch / "up.log"
        self._launcher: subprocess.Popen[bytes] | None = None

    # -- commands ------------------------------------------------------------------------------

    def command(
        self, *words: str, status: int | None = 0, timeout: float = 300.0, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run one command to its end; fails unless it ends with ``status`` (None: any)."""
        argv = [str(COMMAND), "--data-dir", str(self.data_dir), *words]
        done = commands.run(argv, env=self.env, stdin=stdin, timeout=timeout)
        if status is not None and done.returncode != status:
            raise CommandError(
                f"pgsub {' '.join(words)}: exit status {done.returncode}, not {status}\n"
                f"{done.stdout}\n{done.stderr}\n--- the launcher's log ends:\n{self.log_tail()}"
            )
        return done

    def file(self, content: Mapping[str, Any] | str, name: str = "subscription.yaml") -> Path:
        """Write a YAML file for a command to read."""
        path = self.scratch / name
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(dict(content)))
        return path

    def up(self, content: Mapping[str, Any] | str, *, timeout: float = 120.0) -> None:
        """Start ``pgsub up FILE`` in the background and wait until the lake answers."""
        self.start("up", str(self.file(content, "up.yaml")))
        self.wait_running(timeout)

    def start(self, *words: str, terminal: int | None = None) -> None:
        """Start a command that stays in the foreground; ``terminal`` is a terminal to run it on."""
        assert self._launcher is None, "a launcher runs already"
        with self.log_file.open("ab") as log:
            # Nothing is left behind by a killed test run.
            argv = dying_with_parent([str(COMMAND), "--data-dir", str(self.data_dir), *words])
            self._launcher = subprocess.Popen(
                argv if self._almighty else _as_anybody(argv),
                stdin=subprocess.DEVNULL if terminal is None else terminal,
                stdout=log if terminal is None else terminal,
                stderr=log if terminal is None else terminal,
                env=self.env,
            )

    def wait_running(self, timeout: float = 120.0) -> None:
        """Until a query on the lake is answered by the running family."""

        def running() -> bool:
            if self._launcher is not None and self._launcher.poll() is not None:
                raise CommandError(f"the launcher ended:\n{self.log_tail()}")
            status = query_launcher(self.data_dir)
            return status is not None and status.phase == "running"

        wait_until(running, timeout, self.log_tail)

    @contextmanager
    def settings(self, *, lake: Mapping[str, Any] | None = None, **values: str) -> Iterator[None]:
        """Other settings for a while, by SIGHUP; a worker that starts meanwhile reads them."""
        before = (self.scratch / "up.yaml").read_text()
        try:
            others = {"lake": dict(lake or {}), "settings": {**SETTINGS, **values}}
            self.reload({"subscriptions": {}, **others})
            yield
        finally:
            self.reload(before)

    def reload(self, content: Mapping[str, Any] | str) -> None:
        """Another file for ``up``, by SIGHUP; returns when the workers go by its settings.

        No signal is sent if they do so already: nothing would tell when it has come.
        """
        wanted = from_stored(load(self.file(content, "up.yaml")).stored())
        if self.in_force() == wanted:
            return
        self.launcher.send_signal(signal.SIGHUP)
        wait_until(lambda: self.in_force() == wanted, 60, self.log_tail)

    def in_force(self) -> Config:
        """What the workers go by."""
        with closing(CatalogStore.open(self.data_dir)) as store:
            return from_stored(store.settings())

    def create(
        self,
        name: str,
        connection: str,
        publications: Sequence[str],
        *,
        tables: Mapping[str, Mapping[str, Any]] | None = None,
        sync_slot: str | None = None,
        messages_to: str | None = None,
        refresh: str | None = None,
        status: int = 0,
        **options: Any,
    ) -> subprocess.CompletedProcess[str]:
        """``pgsub create`` of one subscription; ``options`` are those of ``WITH (…)``."""
        entry: dict[str, Any] = {"connection": connection, "publication": list(publications)}
        if options:
            entry["with"] = options
        if tables:
            entry["tables"] = dict(tables)
        if sync_slot:
            entry["sync_slot"] = sync_slot
        if messages_to:
            entry["messages_to"] = messages_to
        if refresh:
            entry["refresh"] = refresh
        content = {"subscriptions": {name: entry}, "settings": SETTINGS}
        return self.command("create", str(self.file(content, f"{name}.yaml")), status=status)

    def drop(self, name: str) -> None:
        """``pgsub drop NAME``."""
        self.command("drop", name)

    def wait(self, name: str, timeout: float = 180.0, lsn: str | None = None) -> None:
        """``pgsub wait NAME``: every table r, and durable up to the position."""
        words = ["wait", name, "--timeout", str(int(timeout))]
        self.command(*words, *(["--lsn", lsn] if lsn else []), timeout=timeout + 30)

    def status(self, view: str) -> list[dict[str, Any]]:
        """A catalog or view as its JSON rows."""
        words = ("status", view, "--format", "json")
        return list(json.loads(self.command(*words).stdout))

    def sql(self, query: str) -> list[dict[str, Any]]:
        """Spark SQL on the lake, as its JSON rows."""
        return list(json.loads(self.command("sql", query, "--format", "json").stdout))

    # -- processes -----------------------------------------------------------------------------

    @property
    def launcher(self) -> psutil.Process:
        """The launcher's process."""
        assert self._launcher is not None
        return psutil.Process(self._launcher.pid)

    def worker(self, name: str, relname: str | None = None) -> dict[str, Any] | None:
        """The row of a worker in pg_stat_subscription: the apply worker, or one that syncs."""
        relids = {row["srrelid"]: row.get("relname") for row in self.status("pg_subscription_rel")}
        for row in self.status("pg_stat_subscription"):
            if row["subname"] != name or row["pid"] is None:
                continue
            if relname is None and row["relid"] is None:
                return row
            if relname is not None and relids.get(row["relid"]) == relname:
                return row
        return None

    def kill_worker(self, name: str, relname: str | None = None) -> int:
        """SIGKILL a worker as soon as there is one; returns the pid it had."""
        row = wait_until(lambda: self.worker(name, relname), 60, f"a worker of {name}")
        os.kill(row["pid"], signal.SIGKILL)
        return int(row["pid"])

    def lake_server(self) -> psutil.Process:
        """The JVM among the launcher's children."""
        for child in self.launcher.children(recursive=True):
            if "java" in name_of(child):
                return child
        raise AssertionError("no lake server runs")

    def family(self) -> list[psutil.Process]:
        """The launcher and all that live below it."""
        return [self.launcher, *self.launcher.children(recursive=True)]

    def kill(self) -> None:
        """SIGKILL the launcher; its children are to follow by themselves."""
        assert self._launcher is not None
        children = self.launcher.children(recursive=True)
        self._launcher.kill()
        self._launcher.wait()
        self._launcher = None
        _, alive = psutil.wait_procs(children, timeout=30)
        assert not alive, f"orphans of the launcher: {alive}"

    def stop(self, timeout: float = 60.0) -> int:
        """SIGTERM the launcher and return its exit status."""
        if self._launcher is None:
            return 0
        launcher, self._launcher = self._launcher, None
        family = (
            psutil.Process(launcher.pid).children(recursive=True) if launcher.poll() is None else []
        )
        launcher.terminate()
        try:
            status = launcher.wait(timeout)
        except subprocess.TimeoutExpired:
            launcher.kill()
            raise AssertionError(f"SIGTERM did not end the launcher:\n{self.log_tail()}") from None
        finally:
            _, alive = psutil.wait_procs(family, timeout=30)
            for process in alive:
                process.kill()
        assert not alive, f"left behind by the launcher: {alive}"
        return status

    def log_tail(self, lines: int = 40) -> str:
        """The last lines of what ``up`` wrote."""
        if not self.log_file.exists():
            return ""
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])

    # -- the lake ------------------------------------------------------------------------------

    def arrow(self, schema: str, table: str) -> pa.Table:
        """What ``main`` of ``lake.schema.table`` holds now."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pyiceberg's and SQLAlchemy's own
            return self.iceberg_table(schema, table).scan().to_arrow()

    def lake_catalog_file(self) -> Path:
        """The embedded lake's catalog; pyiceberg's SqlCatalog reads it."""
        return self.lake_dir / "catalog.db"

    def iceberg_table(self, schema: str, table: str) -> Table:
        """The table as pyiceberg loads it."""
        from pyiceberg.catalog.sql import SqlCatalog

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            catalog = SqlCatalog(
                "lake",
                uri=f"sqlite:///{self.lake_catalog_file()}",
                warehouse=f"file://{self.lake_dir}/warehouse",
            )
            with closing(catalog):  # SQLite removes a log by its name when a connection ends
                return catalog.load_table((schema, table))

    def rows(
        self, schema: str, table: str, columns: Sequence[str] | None = None
    ) -> list[tuple[Any, ...]]:
        """All rows as Python values, in the order in which ``native_rows`` has them."""
        return python_rows(self.arrow(schema, table), columns)


def _as_anybody(argv: Sequence[str]) -> list[str]:
    """No process from here on has root's right to write everywhere (Linux; elsewhere it stays)."""
    if sys.platform != "linux":
        return list(argv)
    return [sys.executable, "-I", "-S", "-c", _WITHOUT_THE_RIGHT, *argv]


def python_rows(found: pa.Table, columns: Sequence[str] | None = None) -> list[tuple[Any, ...]]:
    """The rows of an Arrow table as psycopg would give them, in the order of ``native_rows``."""
    wanted = found.column_names if columns is None else list(columns)
    values = [_python(found.column(name)) for name in wanted]
    return in_order(list(zip(*values, strict=True)) if values else [])


def _python(column: pa.ChunkedArray[Any]) -> list[Any]:
    """A column as psycopg would give the same values."""
    values = column.to_pylist()
    if pa.types.is_float32(column.type):
        return [None if value is None else float(str(np.float32(value))) for value in values]
    return values
