"""``pgsub demo``: replication on a single machine, from an empty folder to a proof.

An embedded PostgreSQL holds a small shop with a running workload. ``pgsub up`` runs as a child
process with a configuration file like any user's. After all tables have followed the stream for
some time, the workload stops, ``pgsub wait`` returns, and publisher and lake compute a digest of
every table.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import psycopg
from rich.console import Console

from catalog.errcodes import ConnectionFailure, ObjectInUse, ObjectNotInPrerequisiteState
from catalog.pg_lsn import LSN
from config.monitor_limits import (
    DEMO_CATCH_UP_SECONDS,
    DEMO_STOP_SECONDS,
    DEMO_STREAM_SECONDS,
    DEMO_SYNC_SECONDS,
    DEMO_TICK_SECONDS,
    DEMO_TRANSACTIONS_PER_SECOND,
)
from subscriber.demo.display import DemoView
from subscriber.demo.embedded_postgres import EmbeddedPublisher
from subscriber.demo.postgres_programs import installed_package
from subscriber.demo.progress import Meter
from subscriber.demo.proof import Verdict, lake_query, publisher_query, verdicts
from subscriber.demo.workload import PUBLICATION, SCHEMA, TABLES, Workload, fill
from workers.lake.server.java import find_java
from workers.parent_death import dying_with_parent
from workers.process.launcher_client import query_launcher

SUBSCRIPTION: Final = "shop_sub"
ROLE: Final = "replicator"
PASSWORD_ENV: Final = "PGSUB_DEMO_PASSWORD"  # noqa: S105 (a variable's name)

CONFIGURATION: Final = """\
# Written by `pgsub demo`. The password is in the environment variable.
subscriptions:
  {subscription}:
    connection: {connection}
    password_env: {password_env}
    publication: [{publication}]
settings:
  wal_receiver_status_interval: 1s
  wal_retrieve_retry_interval: 1s
  copy_range_bytes: 2MB    # small ranges, so that there is a progress to see
"""

NEXT: Final = """
The tables stay where they are. Look at them with Spark SQL:

  {pgsub} sql "SELECT status, count(*) FROM lake.shop.orders GROUP BY status"

or with pyiceberg, which reads the same files without Spark:

  {python} -c "from pyiceberg.catalog.sql import SqlCatalog; print(SqlCatalog('lake', \
uri='sqlite:///{lake}/catalog.db', warehouse='{lake}/warehouse').load_table('shop.orders')\
.scan(limit=5).to_arrow())"

The configuration was {file}; for a server of your own, write one like it and run

  {pgsub} up subscription.yaml
"""


def run_demo(data_dir: Path, *, stream_seconds: float = DEMO_STREAM_SECONDS) -> int:
    """Run the demo in ``data_dir``; 0 if the proof holds, 1 if not or after Ctrl-C.

    The files of an earlier demo are removed; a folder with other files is refused (55000). The
    demo first looks for what the extra ``embedded`` brings: without the extra nothing is removed.
    """
    installed_package()
    find_java()
    folder = _prepare(data_dir)
    console = Console()
    with _ctrl_c():
        try:
            return _Demo(data_dir, folder, console).run(stream_seconds)
        except KeyboardInterrupt:
            console.print("stopped")
            return 1


class _Demo:
    def __init__(self, data_dir: Path, folder: Path, console: Console) -> None:
        self.data_dir = data_dir
        self.file = folder / "subscription.yaml"
        self.log = folder / "up.log"
        self.view = DemoView(console)
        self.publisher = EmbeddedPublisher(18, password=secrets.token_hex(16))
        self.workload = Workload(lambda: self.publisher.dsn, DEMO_TRANSACTIONS_PER_SECOND)
        self.password = secrets.token_hex(16)
        self.env = {**os.environ, PASSWORD_ENV: self.password}

    def run(self, stream_seconds: float) -> int:
        """Run from start to proof; at the end every started process is stopped."""
        with contextlib.ExitStack() as stack:
            self.view.print_line("starting a PostgreSQL server and filling a shop ...")
            stack.enter_context(self.publisher)
            self._fill()
            self.workload.start()
            stack.callback(self.workload.stop)
            self.view.print_line(f"starting `pgsub up {self.file}` ...")
            child = stack.enter_context(self._up())
            self._watch(child, stream_seconds)
            self.workload.stop()
            self.view.print_line(
                f"the shop is closed: {self.workload.transactions:,} transactions,"
                f" {self.workload.rows:,} rows changed; `pgsub wait` ..."
            )
            self._command("wait", SUBSCRIPTION, "--timeout", str(DEMO_CATCH_UP_SECONDS))
            self.view.print_line("both sides compute a digest of every table ...")
            result = self._prove()
        self.view.verdict(result)
        if not all(verdict.is_equal for verdict in result):
            self.view.print_line("the lake is NOT what the publisher holds")
            return 1
        self.view.print_line("the lake holds exactly what the publisher holds")
        self.view.print_line(self._next())
        return 0

    def _fill(self) -> None:
        with self.publisher.connect() as connection:
            fill(connection)
            for statement in (
                f"CREATE ROLE {ROLE} LOGIN REPLICATION PASSWORD '{self.password}'",
                f"GRANT USAGE ON SCHEMA {SCHEMA} TO {ROLE}",
                f"GRANT SELECT ON ALL TABLES IN SCHEMA {SCHEMA} TO {ROLE}",
            ):
                connection.execute(statement.encode())
        rows = ", ".join(f"{table.rows:,} {table.name}" for table in TABLES)
        self.view.print_line(f"PostgreSQL 18 on port {self.publisher.port}: {rows}")

    @contextlib.contextmanager
    def _up(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run ``pgsub up`` in a process that Ctrl-C does not reach; stop the process at the end."""
        parts = {"host": "127.0.0.1", "port": self.publisher.port, "dbname": "postgres"}
        self.file.write_text(
            CONFIGURATION.format(
                subscription=SUBSCRIPTION,
                connection=" ".join(f"{name}={value}" for name, value in parts.items())
                + f" user={ROLE}",
                password_env=PASSWORD_ENV,
                publication=PUBLICATION,
            )
        )
        with self.log.open("wb") as log:
            child = subprocess.Popen(
                dying_with_parent([*_pgsub(self.data_dir), "up", str(self.file)]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.env,
                start_new_session=True,
            )
        try:
            yield child
        finally:
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(DEMO_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def _watch(self, child: subprocess.Popen[bytes], stream_seconds: float) -> None:
        """Display readings until every table has followed the stream for some time."""
        deadline, synced_at = time.monotonic() + DEMO_SYNC_SECONDS, None
        with self.publisher.connect() as connection, self.view:
            meter = Meter(
                self.data_dir,
                SUBSCRIPTION,
                {table.name: table.rows for table in TABLES},
                lambda: _position(connection),
                lambda: self.workload.rows,
            )
            with contextlib.closing(meter):
                while synced_at is None or time.monotonic() < synced_at + stream_seconds:
                    self._check(child)
                    reading = meter.read()
                    self.view.show(reading, self._workload_line(reading.elapsed))
                    if reading.is_synced and synced_at is None:
                        synced_at = time.monotonic()
                    if synced_at is None and time.monotonic() > deadline:
                        raise ConnectionFailure(
                            f"the tables were not synchronized in {DEMO_SYNC_SECONDS:.0f} s",
                            detail=self._log_tail(),
                        )
                    time.sleep(DEMO_TICK_SECONDS)

    def _check(self, child: subprocess.Popen[bytes]) -> None:
        """Raise the error of ``up`` or of the workload if either has ended."""
        if child.poll() is not None:
            raise ConnectionFailure(
                f"pgsub up ended with status {child.returncode}", detail=self._log_tail()
            )
        if self.workload.error is not None:
            raise ConnectionFailure("the workload ended", detail=str(self.workload.error))

    def _workload_line(self, elapsed: float) -> str:
        kinds = ", ".join(
            f"{self.workload.by_kind[kind]:,} {kind}" for kind in ("inserted", "updated", "deleted")
        )
        rate = self.workload.transactions / max(elapsed, 1.0)
        return f"{rate:.0f} transactions/s; rows: {kinds}"

    def _prove(self) -> list[Verdict]:
        here = self.publisher.execute(publisher_query())
        answer = self._command("sql", lake_query(), "--format", "json")
        return verdicts([(row[0], row[1], row[2]) for row in here], json.loads(answer))

    def _command(self, *words: str) -> str:
        """Run a command like a user; the output, or the command's error."""
        done = subprocess.run(
            [*_pgsub(self.data_dir), *words], capture_output=True, text=True, env=self.env
        )
        if done.returncode:
            raise ConnectionFailure(
                f"pgsub {words[0]} ended with status {done.returncode}", detail=done.stderr.strip()
            )
        return done.stdout

    def _log_tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])

    def _next(self) -> str:
        command = Path(sys.argv[0])
        default = self.data_dir.resolve() == Path("pgsub_data").resolve()
        name = os.path.relpath(command) if command.is_absolute() else str(command)
        return NEXT.format(
            pgsub=name if default else f"{name} --data-dir {self.data_dir}",
            python=os.path.relpath(sys.executable),
            lake=self.data_dir.resolve() / "lake",
            file=self.file,
        )


def _prepare(data_dir: Path) -> Path:
    """Create an empty data directory with a folder for the demo's files."""
    folder = data_dir / "demo"
    if data_dir.exists() and any(data_dir.iterdir()):
        if not folder.is_dir():
            raise ObjectNotInPrerequisiteState(
                f'data directory "{data_dir}" is not empty and no demo made it',
                hint="Name another directory with --data-dir.",
            )
        if query_launcher(data_dir) is not None:
            raise ObjectInUse(f'a launcher runs on data directory "{data_dir}"')
        shutil.rmtree(data_dir)
    folder.mkdir(parents=True)
    data_dir.chmod(0o700)
    return folder


def _pgsub(data_dir: Path) -> Sequence[str]:
    """The command as an argument list, without a script on PATH."""
    code = "import sys; from subscriber.cli import main; sys.exit(main())"
    return [sys.executable, "-P", "-c", code, "--data-dir", str(data_dir)]


def _position(connection: psycopg.Connection) -> tuple[LSN, LSN | None]:
    """The publisher's WAL position, and the confirmed position of the subscription's slot."""
    [(current, confirmed)] = connection.execute(
        "SELECT pg_current_wal_lsn()::text, (SELECT confirmed_flush_lsn::text"
        " FROM pg_replication_slots WHERE slot_name = %s)",
        (SUBSCRIPTION,),
    ).fetchall()
    return LSN.parse(current), LSN.parse(confirmed) if confirmed else None


@contextlib.contextmanager
def _ctrl_c() -> Iterator[None]:
    """Let SIGTERM stop the demo like Ctrl-C."""

    def interrupt(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
