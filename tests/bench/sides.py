"""The two subscribers that are measured, behind one interface."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import statistics
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

import psycopg

from catalog.pg_lsn import LSN
from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.bench.figures import Begun
from tests.bench.local_lake import SCHEMA, current_snapshot, lake_metadata
from tests.bench.meters import MB, cpu_seconds, files_mb, open_files_mb, tree
from tests.fix_publisher import Database
from tests.harness import Pgsub
from tests.twin import NativeTwin
from tests.waiting import wait_until

POLL: Final = 0.05
PATIENCE: Final = 1800.0
"""Seconds after which what is waited for is taken to have failed."""

SERVER_CONF: Final = {
    "fsync": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "max_prepared_transactions": "1100",
    # A walsender is held for longer than a minute while a large transaction is written.
    "wal_receiver_timeout": "0",
}
PUBLISHER_CONF: Final = {**SERVER_CONF, "track_commit_timestamp": "on"}
"""It tells when a transaction was committed. A native subscriber with this on compares origins and
logs each row it changes that was copied: 200,000 updates took 7 s instead of 3."""

OUR_SETTINGS: Final = {"wal_receiver_timeout": "0"}
"""The rest are the defaults."""

LAKE_SERVER: Final = "lake server"
SPARK_PYTHON: Final = "Spark's Python"
PYTHON: Final = ("launcher", "fork server", "apply worker", "sync worker", SPARK_PYTHON)
"""What our processes are."""


class Side(Protocol):
    """A subscriber. The waits return when rows can be read."""

    name: str
    with_options: Mapping[str, Any]
    """Of the next subscription."""

    def subscribe(self, publication: str, tables: dict[str, str], *, copy_data: bool) -> Begun:
        """Subscribe to a publication; ``tables`` holds each table's definition."""

    def wait_synced(self, tables: list[str]) -> None:
        """Until each table's rows at the time of CREATE are visible."""

    def wait_visible(self, table: str, target: LSN) -> None:
        """Until a reader of the table sees everything up to the position."""

    def count(self, table: str) -> int:
        """Rows, as a query sees them."""

    def sum(self, table: str, column: str) -> int:
        """Of a column of integers, as a query sees them."""

    def application_name(self) -> str:
        """Of the walsender that serves the apply worker."""

    def publications_of(self, table: str) -> list[tuple[datetime, LSN]]:
        """When readers of the table saw more than before, and up to which position."""

    def query_alone(self, table: str) -> float:
        """Seconds a new query of the table takes when nothing else happens."""

    def rewritten(self, table: str) -> str:
        """A copy of the table, written just now; its name."""

    def scan(self, table: str, columns: str) -> tuple[float, int]:
        """A query that reads each value of these columns: its seconds, and a sum of them.

        Two tables with the same rows have the same sum. ``id`` is the first column.
        """

    def files(self, table: str) -> dict[str, float]:
        """What the table consists of, as figures."""

    def drop(self, table: str) -> None:
        """Drop a table that no subscription writes."""

    def unsubscribe(self) -> None:
        """Drop the subscription with its slot, and the tables."""

    def pids(self) -> dict[int, str]:
        """Its processes and what each is."""

    def cpu_seconds(self) -> float:
        """CPU time of all its processes until now, the publisher's not counted."""

    def on_disk(self) -> dict[str, float]:
        """MB of received changes that lie on its disk now, by figure."""


class Progress(threading.Thread):
    """Samples how far the native subscriber has applied, until told to stop."""

    def __init__(self, here: Database) -> None:
        super().__init__(daemon=True)
        self._here = here
        self._moves: list[tuple[datetime, LSN]] = []
        self._ending = threading.Event()
        self._looking = threading.Lock()

    def run(self) -> None:
        with self._here.connect() as connection:
            while not self._ending.wait(0.01):
                self._look(connection)

    def _look(self, connection: psycopg.Connection) -> None:
        with self._looking:
            row = connection.execute(
                "SELECT max(remote_lsn)::text FROM pg_replication_origin_status"
            ).fetchone()
            if row is not None and row[0] is not None:
                self._note(LSN.parse(row[0]))

    def _note(self, position: LSN) -> None:
        if not self._moves or self._moves[-1][1] != position:
            self._moves.append((datetime.now(UTC), position))

    def seen(self) -> list[tuple[datetime, LSN]]:
        """Each position until now, and when it was seen first."""
        with self._here.connect() as connection:
            self._look(connection)
        return list(self._moves)

    def stop(self) -> None:
        """End."""
        self._ending.set()
        self.join()


class Native:
    """PostgreSQL's own subscriber."""

    name = "native"
    with_options: Mapping[str, Any] = {}

    def __init__(self, publisher: Database) -> None:
        self.twin = NativeTwin(18)
        self.twin.server = EmbeddedPublisher(18, conf=SERVER_CONF)
        self.twin.server.start()
        self.twin.server.create_database("bench")
        self.here = Database(self.twin.server, "bench", SCHEMA)
        self.here.execute(f"CREATE SCHEMA {SCHEMA}")
        self.publisher = publisher
        self._tables: list[str] = []

    def configuration(self) -> str:
        """What differs from the server's defaults and is not about where it listens and logs."""
        query = (
            "SELECT string_agg(name || ' = ' || current_setting(name), ', ' ORDER BY name)"
            " FROM pg_settings WHERE source = 'command line'"
            " AND name !~ '^(port$|listen_|unix_|log_|logging_)'"
        )
        return str(self.here.value(query))

    def subscribe(self, publication: str, tables: dict[str, str], *, copy_data: bool) -> Begun:
        self._tables = list(tables)
        self.here.run(*(f"CREATE TABLE {name} ({text})" for name, text in tables.items()))
        options = {"copy_data": copy_data, **self.with_options}
        words = {name: str(value) for name, value in options.items()}
        self.twin.subscribe(self.here, self.publisher, "bench_native", [publication], **words)
        begun = Begun(time.monotonic(), self.cpu_seconds())
        self._progress = Progress(self.here)
        self._progress.start()
        return begun

    def wait_synced(self, tables: list[str]) -> None:
        query = "SELECT count(*) FROM pg_subscription_rel WHERE srsubstate IN ('r', 's')"
        with self.here.connect() as connection:
            wait_until(
                lambda: connection.execute(query).fetchone() == (len(tables),), PATIENCE, pause=POLL
            )

    def wait_visible(self, table: str, target: LSN) -> None:
        query = "SELECT replay_lsn FROM pg_stat_replication WHERE application_name = 'bench_native'"
        with self.publisher.connect() as connection:

            def replayed() -> bool:
                row = connection.execute(query).fetchone()
                return row is not None and row[0] is not None and LSN.parse(row[0]) >= target

            wait_until(replayed, PATIENCE, f"the native subscriber replayed {target}", pause=POLL)

    def count(self, table: str) -> int:
        return int(self.here.value(f"SELECT count(*) FROM {table}"))

    def sum(self, table: str, column: str) -> int:
        return int(self.here.value(f"SELECT sum({column}) FROM {table}"))

    def publications_of(self, table: str) -> list[tuple[datetime, LSN]]:
        """When the subscriber had applied how much, as sampled while it was at it.

        Its rows do not tell: they carry the publisher's commit time.
        """
        del table
        return self._progress.seen()

    def application_name(self) -> str:
        return "bench_native"

    def query_alone(self, table: str) -> float:
        """Seconds: what is applied is readable at once."""
        del table
        return 0.0

    def rewritten(self, table: str) -> str:
        copy = f"{table}_fresh"
        self.here.run(f"CREATE TABLE {copy} AS TABLE {table}", f"VACUUM (ANALYZE) {copy}")
        return copy

    def scan(self, table: str, columns: str) -> tuple[float, int]:
        # Reading the last column of a row goes through all before it.
        first, last = columns.split(", ")[0], columns.split(", ")[-1]
        query = f"SELECT bit_xor(hashtextextended({last}, {first})) FROM {table}"
        with self.here.connect() as connection:
            started = time.monotonic()
            row = connection.execute(query.encode()).fetchone()
            taken = time.monotonic() - started
        assert row is not None
        return taken, int(row[0])

    def files(self, table: str) -> dict[str, float]:
        return {"table_mb": round(self.here.value(f"SELECT pg_table_size('{table}')") / MB, 1)}

    def drop(self, table: str) -> None:
        self.here.run(f"DROP TABLE {table}")

    def unsubscribe(self) -> None:
        self._progress.stop()
        self.here.execute("DROP SUBSCRIPTION bench_native")
        self.here.run(*(f"DROP TABLE {name}" for name in self._tables))

    def pids(self) -> dict[int, str]:
        query = "SELECT pid, backend_type FROM pg_stat_activity WHERE backend_type LIKE 'logical%'"
        return dict(self.here.execute(query))

    def cpu_seconds(self) -> float:
        pid = self.twin.server.pid
        assert pid is not None
        return cpu_seconds(tree(pid))

    def on_disk(self) -> dict[str, float]:
        return {"spool_mb": files_mb(self.twin.server.data_dir / "base" / "pgsql_tmp")}

    def close(self) -> None:
        """Stop the server."""
        self.twin.server.stop()


class Ours:
    """``pgsub`` with its default settings, but for those that measuring needs."""

    name = "ours"
    with_options: Mapping[str, Any] = {}
    with_tables: Mapping[str, Any] = {}
    """What the configuration says of every table of the next subscription."""
    environment: Mapping[str, str] = {}
    """Of ``pgsub``, beside the benchmark's own."""

    def __init__(self, publisher: Database, folder: Path, lake: Any = None) -> None:
        """``lake`` is the configuration's entry of this name."""
        self.publisher, self.lake = publisher, dict(lake or {})
        self.pgsub = Pgsub(folder / "data", self.environment)
        self.pgsub.up(self._content(), timeout=300)
        self.pgsub.sql("SELECT 1")  # the server is warm, as the native one is
        self._tables: list[str] = []

    @contextlib.contextmanager
    def new_tables(self, **keys: Any) -> Iterator[None]:
        """``lake`` has these keys meanwhile: the Iceberg format, or the writer."""
        self.pgsub.reload(self._content(**keys))
        try:
            yield
        finally:
            self.pgsub.reload(self._content())

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Meanwhile nobody but the batches asks: no status tables, no maintenance."""
        others = {"status_tables_interval": 0, "autovacuum": False}
        content = self._content()
        self.pgsub.reload({**content, "settings": {**content["settings"], **others}})
        try:
            yield
        finally:
            self.pgsub.reload(content)

    def requests(self) -> int:
        """Of ours to the catalog and to the store until now; 0 where nobody counts."""
        return 0

    def _content(self, **keys: Any) -> dict[str, Any]:
        return {"subscriptions": {}, "settings": OUR_SETTINGS, "lake": self.lake | keys}

    def metadata(self, table: str) -> dict[str, Any]:
        return lake_metadata(self.pgsub, table)

    def subscribe(
        self,
        publication: str,
        tables: dict[str, str],
        *,
        copy_data: bool,
        options: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Begun:
        """``options``: what the configuration says of some tables instead of ``with_tables``."""
        self._tables = list(tables)
        if options is None:
            options = dict.fromkeys(tables, self.with_tables) if self.with_tables else {}
        query = "SELECT count(*) FROM pg_subscription WHERE subcreate = 'ready'"
        with ThreadPoolExecutor(1) as pool:
            command = pool.submit(
                self.pgsub.create,
                "bench",
                self.publisher.dsn,
                [publication],
                tables={f"{SCHEMA}.{table}": said for table, said in options.items()},
                copy_data=copy_data,
                **self.with_options,
            )
            wait_until(lambda: command.done() or self._catalog(query) == [(1,)], PATIENCE)
            begun = Begun(time.monotonic(), self.cpu_seconds())
            command.result()
        return begun

    def wait_synced(self, tables: list[str]) -> None:
        wait_until(
            lambda: all(
                self._ready(table) and self._position(table) is not None for table in tables
            ),
            PATIENCE,
            "the tables are copied",
            pause=POLL,
        )

    def wait_visible(self, table: str, target: LSN) -> None:
        wait_until(
            lambda: (self._position(table) or LSN(0)) >= target,
            PATIENCE,
            lambda: f"{table} is at {self._position(table)}\n{self.pgsub.log_tail()}",
            pause=POLL,
        )

    def count(self, table: str) -> int:
        [row] = self.pgsub.sql(f"SELECT count(*) AS n FROM lake.{SCHEMA}.{table}")
        return int(row["n"])

    def sum(self, table: str, column: str) -> int:
        [row] = self.pgsub.sql(f"SELECT sum({column}) AS n FROM lake.{SCHEMA}.{table}")
        return int(row["n"])

    def publications_of(self, table: str) -> list[tuple[datetime, LSN]]:
        """When ``main`` moved, and the position it then carried."""
        metadata = self.metadata(table)
        carried = {
            snapshot["snapshot-id"]: snapshot.get("summary", {}).get("pgsub.lsn")
            for snapshot in metadata["snapshots"]
        }
        moves = []
        for entry in metadata["snapshot-log"]:
            text = carried.get(entry["snapshot-id"])
            if text:
                moment = datetime.fromtimestamp(entry["timestamp-ms"] / 1000, UTC)
                moves.append((moment, LSN.parse(text)))
        return moves

    def query_alone(self, table: str) -> float:
        query = f"SELECT count(*) AS n FROM lake.{SCHEMA}.{table}"
        taken = statistics.median(self._timed(query)[0] for _ in range(3))
        return max(0.0, taken - self._command())

    def rewritten(self, table: str) -> str:
        copy = f"{table}_fresh"
        source = f"lake.{SCHEMA}.{table}"
        self.pgsub.sql(f"CREATE TABLE lake.{SCHEMA}.{copy} USING iceberg AS SELECT * FROM {source}")
        return copy

    def scan(self, table: str, columns: str) -> tuple[float, int]:
        query = f"SELECT bit_xor(xxhash64({columns})) AS n FROM lake.{SCHEMA}.{table}"
        command = self._command()
        taken, found = self._timed(query)
        return max(1e-3, taken - command), found

    def _timed(self, query: str) -> tuple[float, int]:
        """Seconds a command takes, and the number ``n`` that it finds."""
        started = time.monotonic()
        [row] = self.pgsub.sql(query)
        return time.monotonic() - started, int(row["n"])

    def _command(self) -> float:
        """Seconds any command takes."""
        return min(self._timed("SELECT 1 AS n")[0] for _ in range(2))

    def files(self, table: str) -> dict[str, float]:
        metadata = self.metadata(table)
        summary = current_snapshot(metadata)["summary"]
        totals = {
            name: int(summary.get(f"total-{what}", 0))
            for name, what in (
                ("files", "data-files"),
                ("delete_files", "delete-files"),
                ("size", "files-size"),
            )
        }
        size = totals.pop("size") / MB
        return {**totals, "snapshots": len(metadata["snapshots"]), "table_mb": round(size, 1)}

    def drop(self, table: str) -> None:
        folder = str(self.metadata(table)["location"])
        self.pgsub.sql(f"DROP TABLE lake.{SCHEMA}.{table}")  # PURGE would be a job of Spark's
        shutil.rmtree(folder.removeprefix("file:"))

    def application_name(self) -> str:
        return "bench"

    def unsubscribe(self) -> None:
        self.pgsub.drop("bench")
        for table in self._tables:
            self.drop(table)

    def pids(self) -> dict[int, str]:
        return {
            process.pid: role_of(process.exe(), process.name(), process.cmdline())
            for process in self.pgsub.family()
        }

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pgsub.family())

    def on_disk(self) -> dict[str, float]:
        apply = [pid for pid, role in self.pids().items() if role == "apply worker"]
        spool = self.pgsub.data_dir / "spool"
        return {
            "spool_mb": sum(open_files_mb(pid, spool) for pid in apply),
            "staging_mb": files_mb(self.pgsub.data_dir / "staging"),
        }

    def close(self) -> None:
        """Stop the family."""
        self.pgsub.stop()

    def _ready(self, table: str) -> bool:
        """The table's state is stored as s or r."""
        query = "SELECT srsubstate FROM pg_subscription_rel WHERE relname = ?"
        return self._catalog(query, table) in ([("s",)], [("r",)])

    def _catalog(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        """Rows of the durable catalog, which is cheap to read."""
        path = self.pgsub.data_dir / "catalog.db"
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10) as connection:
            return connection.execute(query, values).fetchall()

    def _position(self, table: str) -> LSN | None:
        """The position that ``main`` of the table carries."""
        metadata = self.metadata(table)
        by_id = {snapshot["snapshot-id"]: snapshot for snapshot in metadata.get("snapshots", [])}
        snapshot = current_snapshot(metadata)
        while snapshot:
            text = snapshot.get("summary", {}).get("pgsub.lsn")
            if text:
                return LSN.parse(text)
            snapshot = by_id.get(snapshot.get("parent-snapshot-id"), {})
        return None


def role_of(exe: str, name: str, cmdline: Sequence[str]) -> str:
    """What one of our processes is.

    Workers are forked, so their command line is the fork server's; their name is their own. What
    the JVM starts has the name of one of its threads, and all of its memory, for a moment.
    """
    if "python_daemon" in " ".join(cmdline):  # the program that Spark starts
        return SPARK_PYTHON
    if Path(exe).name == "java":
        return LAKE_SERVER
    roles = {"pgsub apply": "apply worker", "pgsub tablesync": "sync worker"}
    roles["pgsub python"] = SPARK_PYTHON
    forking = "multiprocessing.forkserver" in " ".join(cmdline)
    return roles.get(name, "fork server" if forking else "launcher")
