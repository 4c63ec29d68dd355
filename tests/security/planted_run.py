"""One run of everything with passwords and a row value that can be searched for.

A publisher that asks for passwords, a family with a data directory that was made by somebody with
the usual umask, copies in ranges, a stream, the errors that a value can cause, and crashes where
cores are kept. What is said and what is left behind is collected here; the tests look at it.
"""

from __future__ import annotations

import io
import os
import re
import resource
import signal
import stat
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from catalog.namespace import quote_literal
from catalog.store_sqlite import CatalogStore
from subscriber.demo.embedded_postgres import EmbeddedPublisher
from subscriber.printing import Format, print_rows
from subscriber.status.views import VIEWS
from tests.crash.failpoint_files import Failpoints
from tests.fix_publisher import Database, new_database
from tests.harness import SETTINGS, Pgsub
from tests.security.argument_watch import ArgumentWatch
from tests.security.hidden_rows import hidden_rows
from tests.security.launcher_tap import LauncherTap
from tests.twin import native_rows
from tests.waiting import wait_until
from workers.lake.connect.session import LakeSession
from workers.process import failpoints
from workers.process.launcher_client import query_launcher

PASSWORD = "planted-7f3aQpassword"
ENV_PASSWORD = "planted-2e8dEpassword"
ODD = " %I\\G:x{y'\"@/#=&?;$\u00e9 "
"""The end of either password: what files, strings, URIs and shells each quote in another way. What
is searched for is the part before, which nobody quotes."""
VALUE = "planted9b1cRvalue"
SECRETS = (PASSWORD, ENV_PASSWORD, VALUE)
ROWS = 20_000

CONTROL = "planted5d2eCcontrol"
"""In two statements of the test's own, so that it is seen what Spark's event log would show."""

ROLE, ENV_NAME, WRONG_ENV_NAME = "planted_role", "PLANTED_PASSWORD", "PLANTED_WRONG"

TABLES = ("big", "words", "whole")
"""Of the first subscription: a number as key, a value as key, and no key but the whole row."""

UNDER_WAY = "tablesync.range_copied"

SURELY_THERE = b"org.apache.spark"
"""What the lake server's memory holds whatever it does: it is seen that it was read."""

LIMITS = {
    **SETTINGS,
    "copy_range_bytes": "1MB",
    "spool_memory": "1MB",
    "batch_max_rows": 30_000,
}
"""So that a few rows are copied in ranges, staged in files and spooled on disk."""


@dataclass(slots=True)
class Found:
    """What the run left for the tests."""

    said: list[str] = field(default_factory=list)
    """Standard output and error of every command."""
    errors: dict[str, str] = field(default_factory=dict)
    """The last words of commands and workers that failed, by what was wrong."""
    environments: list[str] = field(default_factory=list)
    """Of the family's processes."""
    core_limits: set[int] = field(default_factory=set)
    """The largest core in bytes that each of them may leave."""
    workers: set[int] = field(default_factory=set)
    lake_servers: set[int] = field(default_factory=set)
    """All pids that the log names."""
    launcher: int = 0
    tap: LauncherTap | None = None
    watch: ArgumentWatch | None = None
    modes: dict[str, int] = field(default_factory=dict)
    """Permissions of everything below the data directory while rows were under way."""
    spooled: list[int] = field(default_factory=list)
    """Permissions of the spool's open files then."""
    staged: list[Path] = field(default_factory=list)
    staged_after_crash: list[Path] = field(default_factory=list)
    env_password_files: dict[str, int] = field(default_factory=dict)
    """Files with the password of the environment, and their permissions, during a copy."""
    in_memory: list[bytes] | None = None
    """What of the password and ``SURELY_THERE`` was in the lake server's memory; None where that
    may not be read."""
    events: list[bytes] = field(default_factory=list)
    """The lines of Spark's event log: statements, plans, stages, tasks, failures."""
    crash_report: tuple[int, str] = (0, "")
    """Permissions and text of what the lake server's JVM wrote when it crashed."""
    crash_files: list[str] = field(default_factory=list)
    """Other files that a crash may leave, wherever."""
    rows: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """By table: the publisher's and the lake's."""
    hidden: list[tuple[Any, ...]] = field(default_factory=list)
    """The lake's rows of a table with an excluded column, and one hashed under a key."""
    bytes_left: dict[str, bytes] = field(default_factory=dict)
    """Every file but the lake's own, before DROP."""
    files_left: list[str] = field(default_factory=list)
    """Every file but the lake's own, after DROP."""


class PlantedRun:
    """The run, step by step, in a folder of its own; ``found`` is filled on the way."""

    def __init__(self, folder: Path, server: EmbeddedPublisher) -> None:
        self.failpoints = Failpoints(folder / "failpoints")
        passwords = {ENV_NAME: f"{ENV_PASSWORD}{ODD}", WRONG_ENV_NAME: f"not-{ENV_PASSWORD}"}
        armed = {failpoints.ENVIRONMENT: str(self.failpoints.directory)}
        self.pgsub = Pgsub(folder / "data", env=passwords | armed)
        self.pgsub.data_dir.chmod(0o755)
        self.database: Database = new_database(server, "planted", schema="planted")
        self.found = Found()
        self.log = self.pgsub.data_dir / "log" / "pgsub.log"
        self.events = folder / "events"
        self.crash_files_before = self._crash_files()

    def play(self) -> Found:
        """From the start of the family to its end."""
        self.events.mkdir()
        conf = {
            "spark.eventLog.enabled": True,
            "spark.eventLog.dir": self.events.as_uri(),
            "spark.eventLog.compress": False,
            "spark.eventLog.rolling.enabled": False,
        }
        self.pgsub.up({"subscriptions": {}, "settings": LIMITS, "spark": {"conf": conf}})
        try:
            with LauncherTap(self.pgsub.data_dir) as tap:
                self.found.tap = tap
                self._use_it()
                assert self.pgsub.stop() == 0, self.pgsub.log_tail()
        finally:
            self.pgsub.stop()
        self.found.events = [
            line for path in self.events.iterdir() for line in path.read_bytes().splitlines()
        ]
        return self.found

    def _use_it(self) -> None:
        self._prepare()
        self._create({"planted": self._entry("pub")})
        self._wait()
        self.database.run(
            f"INSERT INTO big VALUES (0, '{VALUE}')",
            # A batch this small travels in Spark's plan.
            f"UPDATE big SET v = '{VALUE} again' WHERE id < 50",
            f"UPDATE words SET id = id || '{VALUE}' WHERE id LIKE '%3'",
            "DELETE FROM words WHERE id LIKE '%4'",
            f"UPDATE whole SET v = v || '{VALUE}' WHERE w < 3",
            "DELETE FROM whole WHERE w > 7",
        )
        self._wait()  # the apply worker knows the tables from here on
        self._copy_by_environment()
        self._copy_by_command()
        self.found.hidden = hidden_rows(self.pgsub, self.database, VALUE, ENV_NAME, self.found.said)
        self._crash_under_way()
        self._fail_to_connect()
        self._fail_to_apply()
        self.command("disable", "planted")
        self.command("enable", "planted")
        self._look_around()
        self.command("drop", "planted")
        self.found.files_left = [name for name, _ in self._files()]
        self._crash_the_lake_server()

    def command(self, *words: str, status: int | None = 0, stdin: str = "") -> str:
        done = self.pgsub.command(*words, status=status, stdin=stdin)
        self.found.said += [done.stdout, done.stderr]
        return done.stdout + done.stderr

    def _wait(self, name: str = "planted") -> None:
        self.command("wait", name)

    def _prepare(self) -> None:
        rows = f"SELECT i, '{VALUE}' || i FROM generate_series(1, {ROWS}) i"
        self.database.run(
            "CREATE TABLE big (id int PRIMARY KEY, v text)",
            f"INSERT INTO big {rows}",
            "CREATE TABLE words (id text PRIMARY KEY, v text)",
            f"INSERT INTO words SELECT '{VALUE}' || i, 'w' FROM generate_series(1, 20) i",
            "CREATE TABLE whole (v text, w int)",
            "ALTER TABLE whole REPLICA IDENTITY FULL",
            f"INSERT INTO whole SELECT '{VALUE}' || i, i FROM generate_series(1, 9) i",
            "CREATE TABLE apart (id int PRIMARY KEY, v text)",
            f"INSERT INTO apart {rows}",
            "CREATE TABLE told (id int PRIMARY KEY, v text)",
            f"INSERT INTO told {rows}",
            "CREATE TABLE hidden (id text PRIMARY KEY, v text)",
            f"INSERT INTO hidden VALUES ('{VALUE}1', '{VALUE}')",
            "CREATE TABLE typed (id int PRIMARY KEY, v text)",
            "CREATE TABLE keyed (id text PRIMARY KEY, v text)",
            "CREATE TABLE ranged (id int PRIMARY KEY, v text)",
            f"INSERT INTO ranged {rows}",
            f"CREATE PUBLICATION pub FOR TABLE {', '.join(TABLES)}",
            "CREATE PUBLICATION pub_apart FOR TABLE apart",
            "CREATE PUBLICATION pub_told FOR TABLE told",
            "CREATE PUBLICATION pub_hidden FOR TABLE hidden",
            "CREATE PUBLICATION pub_typed FOR TABLE typed",
            "CREATE PUBLICATION pub_keyed FOR TABLE keyed",
            "CREATE PUBLICATION pub_ranged FOR TABLE ranged",
            f"CREATE ROLE {ROLE} LOGIN REPLICATION PASSWORD {quote_literal(ENV_PASSWORD + ODD)}",
            f"GRANT USAGE ON SCHEMA planted TO {ROLE}",
            f"GRANT SELECT ON apart, told TO {ROLE}",
        )
        status = query_launcher(self.pgsub.data_dir)
        assert status is not None
        session = LakeSession(str(status.lake_url), "planted", str(uuid.uuid4()))
        for statement in (
            "CREATE NAMESPACE IF NOT EXISTS lake.planted",
            "CREATE TABLE lake.planted.typed (id INT, v INT) USING iceberg",
            "CREATE TABLE lake.planted.keyed (id STRING, v STRING) USING iceberg",
            "CREATE TABLE lake.planted.ranged (id INT, v INT) USING iceberg",
            f"INSERT INTO lake.planted.keyed VALUES ('{CONTROL}', 'old')",
        ):
            session.command(statement, "preparing")
        held = session.query(f"SELECT v FROM lake.planted.keyed WHERE id = '{CONTROL}'", "looking")
        assert held.num_rows == 1
        # Not as a literal: the value must not be in a statement of the test's.
        row = session.local(pa.table({"id": [VALUE], "v": ["old"]}))
        session.append(row, "lake.planted.keyed", {}, "preparing")
        session.close()

    def _entry(self, publication: str, **entry: Any) -> dict[str, Any]:
        return {"connection": self.database.dsn, "publication": [publication], **entry}

    def _entry_of_role(self, publication: str, **place: str) -> dict[str, Any]:
        """An entry of the role whose password is in a place other than the connection string."""
        parts = {**conninfo_to_dict(self.database.dsn), "user": ROLE}
        del parts["password"]
        return self._entry(publication, connection=make_conninfo("", **parts), **place)

    def _create(self, subscriptions: dict[str, Any], status: int = 0) -> str:
        path = self.pgsub.file({"subscriptions": subscriptions, "settings": LIMITS}, "planted.yaml")
        return self.command("create", str(path), status=status)

    def _copy_by_environment(self) -> None:
        """A copy in ranges whose password is in the environment; seen while it is under way."""
        self.failpoints.arm(UNDER_WAY)
        self._create({"apart": self._entry_of_role("pub_apart", password_env=ENV_NAME)})
        self.failpoints.wait_held(UNDER_WAY, how=self.pgsub.log_tail)
        for name, path in self._files():
            with suppress(FileNotFoundError):  # Spark's scratch comes and goes
                if ENV_PASSWORD.encode() in path.read_bytes():
                    self.found.env_password_files[name] = stat.S_IMODE(path.stat().st_mode)
        self.failpoints.release(UNDER_WAY)
        self.database.run(f"UPDATE apart SET v = '{VALUE} again' WHERE id < 50")
        self._wait("apart")
        self._compare("apart")

    def _copy_by_command(self) -> None:
        """A copy in ranges, and a stream, whose password a command prints."""
        command = f'printf %s "${ENV_NAME}"'
        self._create({"told": self._entry_of_role("pub_told", password_command=command)})
        self.database.run(f"UPDATE told SET v = '{VALUE} again' WHERE id < 50")
        self._wait("told")
        self._compare("told")

    def _compare(self, *tables: str) -> None:
        for table in tables:
            publisher = native_rows(self.database, f"planted.{table}")
            self.found.rows[table] = (publisher, self.pgsub.rows("planted", table))

    def _crash_under_way(self) -> None:
        """The lake stands still while rows are staged and spooled; then the worker crashes.

        Those that Spark finds by their values are staged in files.
        """
        self.database.run(
            f"INSERT INTO whole SELECT '{VALUE}' || i, i FROM generate_series(10, {ROWS}) i"
        )
        self._wait()
        lake = self.pgsub.lake_server()
        lake.suspend()
        try:
            self.database.run("UPDATE whole SET v = v || 'w'")
            for number in range(3):
                self.database.run(f"UPDATE big SET v = v || '{number}'")
            wait_until(lambda: self._staged(), 60, "rows are staged")
            pid = int(wait_until(lambda: self.pgsub.worker("planted"), 60, "a worker")["pid"])
            wait_until(lambda: self._spooled(pid), 60, "rows are spooled")
            self.found.modes = {
                str(path.relative_to(self.pgsub.data_dir)): stat.S_IMODE(path.lstat().st_mode)
                for path in self.pgsub.data_dir.rglob("*")
            }
            self.found.spooled = self._spooled(pid)
            self.found.staged = self._staged()
            psutil.Process(pid).send_signal(signal.SIGABRT)
        finally:
            lake.resume()
        self.database.run("DELETE FROM big WHERE id % 7 = 0")
        self._wait()
        wait_until(lambda: not self._staged(), 60, lambda: f"nothing is staged: {self._staged()}")
        self.found.staged_after_crash = self._staged()
        self._compare(*TABLES)

    def _staged(self) -> list[Path]:
        return list((self.pgsub.data_dir / "staging").rglob("*.parquet"))

    def _spooled(self, pid: int) -> list[int]:
        """Modes of the unlinked files that a worker has open in the spool's folder."""
        spool = str(self.pgsub.data_dir / "spool")
        fds = Path(f"/proc/{pid}/fd")
        return [
            stat.S_IMODE(fd.stat().st_mode)
            for fd in fds.iterdir()
            if os.readlink(fd).startswith(spool)
        ]

    def _fail_to_connect(self) -> None:
        errors = self.found.errors
        wrong = self.database.dsn.replace(PASSWORD, f"not-{PASSWORD}")
        errors["wrong password"] = self._create({"s": self._entry("pub", connection=wrong)}, 1)
        file = self.pgsub.scratch / "planted.yaml"
        errors["check"] = self.command("check", str(file), status=None)
        torn = f"{self.database.dsn} {PASSWORD}"
        errors["no conninfo"] = self._create({"s": self._entry("pub", connection=torn)}, 2)
        by_environment = self._entry_of_role("pub_apart", password_env=WRONG_ENV_NAME)
        errors["wrong environment"] = self._create({"s": by_environment}, 1)
        connection = quote_literal(self.database.dsn)
        text = f"CREATE SUBSCRIPTION s CONNECTION {connection} PUBLIKATION pub"
        errors["no SQL"] = self.command("exec", status=1, stdin=text)

    def _fail_to_apply(self) -> None:
        """A value that its column cannot hold, streamed and copied, and a key that is there."""
        streamed = {"copy_data": False, "disable_on_error": True}
        seen = self.log.stat().st_size
        self._create(
            {
                name: self._entry(
                    f"pub_{name}",
                    tables={f"planted.{name}": {"adopt": True}},
                    **{"with": {**streamed, "copy_data": name == "ranged"}},
                )
                for name in ("typed", "keyed", "ranged")
            }
        )
        self.database.run(
            f"INSERT INTO typed VALUES (1, '{VALUE}')", f"INSERT INTO keyed VALUES ('{VALUE}', 'a')"
        )

        def log() -> str:
            return self.log.read_bytes()[seen:].decode()

        for name in ("typed", "keyed", "ranged"):
            wait_until(partial(self._is_disabled, name), 90, log)
        self.found.errors["workers"] = log()

    def _is_disabled(self, name: str) -> bool:
        with closing(CatalogStore.open(self.pgsub.data_dir)) as store:
            sub = store.subscription_by_name(name)
        return sub is not None and not sub.subenabled

    def _look_around(self) -> None:
        found = self.found
        wait_until(lambda: self.pgsub.worker("planted"), 60, "a worker again")
        self.command("status")
        self._look_at_views()
        for process in self.pgsub.family():
            found.environments.append(str(process.environ()))
            found.core_limits.add(process.rlimit(psutil.RLIMIT_CORE)[0])
        found.launcher = self.pgsub.launcher.pid
        log = self.log.read_text()
        found.workers = set(map(int, re.findall(r"action=worker_start .*?\bpid=(\d+)", log)))
        found.lake_servers = set(map(int, re.findall(r"action=lake_start pid=(\d+)", log)))
        found.in_memory = held_in_memory(
            self.pgsub.lake_server().pid, [PASSWORD.encode(), SURELY_THERE]
        )
        found.bytes_left = {name: path.read_bytes() for name, path in self._files()}

    def _crash_the_lake_server(self) -> None:
        """As by an error in its own code, or in a library's."""
        lake, launcher = self.pgsub.lake_server(), self.pgsub.launcher
        launcher.suspend()  # the next server would begin by clearing up
        try:
            lake.send_signal(signal.SIGSEGV)
            wait_until(lambda: lake.status() == psutil.STATUS_ZOMBIE, 120, "the server has ended")
            report = self.pgsub.data_dir / "log" / "lake-server.crash"
            mode = stat.S_IMODE(report.stat().st_mode)
            self.found.crash_report = (mode, report.read_text(errors="replace"))
            self.found.crash_files = sorted(self._crash_files() - self.crash_files_before)
        finally:
            launcher.resume()

    def _crash_files(self) -> set[str]:
        """Where a process runs, and where Java goes when it cannot write there."""
        names = re.compile(r"core(\.\d+)?|(hs_err|replay)_pid\d+.*")
        folders = [Path.cwd(), Path(tempfile.gettempdir()), Path("/tmp")]
        tops = [path for folder in folders for path in folder.iterdir()]
        return {
            str(path)
            for path in [*tops, *self.pgsub.data_dir.rglob("*")]
            if names.fullmatch(path.name) and path.is_file()
        }

    def _look_at_views(self) -> None:
        """As ``pgsub status`` prints them."""
        status = query_launcher(self.pgsub.data_dir)
        assert status is not None
        with closing(CatalogStore.open(self.pgsub.data_dir)) as store:
            for view in VIEWS.values():
                rows = view.rows(store, status.workers)
                for form in Format:
                    stream = io.StringIO()
                    print_rows(view.columns, rows, form, stream)
                    self.found.said.append(stream.getvalue())

    def _files(self) -> list[tuple[str, Path]]:
        folder = self.pgsub.data_dir
        return [
            (str(path.relative_to(folder)), path)
            for path in folder.rglob("*")
            if path.is_file() and folder / "lake" / "warehouse" not in path.parents
        ]


@contextmanager
def everything_shown() -> Iterator[None]:
    """What is made may be read by everybody, and who crashes leaves a core, as far as it goes."""
    mask = os.umask(0o022)
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
        os.umask(mask)


def run_in(folder: Path) -> Found:
    """One run from beginning to end, every argument list on the machine watched meanwhile."""
    with (
        everything_shown(),
        ArgumentWatch(SECRETS) as watch,
        EmbeddedPublisher(18, password=f"{PASSWORD}{ODD}") as server,
    ):
        found = PlantedRun(folder, server).play()
        assert watch.alive
        found.watch = watch
    return found


def memory_is_closed() -> bool:
    """Whether even a plain child's memory may not be read here."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        closed = held_in_memory(child.pid, []) is None
        child.communicate()
    return closed


def held_in_memory(pid: int, wanted: list[bytes]) -> list[bytes] | None:
    """Which of the words a process has in its memory; None if we may not look."""
    held: set[bytes] = set()
    try:
        with (
            Path(f"/proc/{pid}/maps").open() as maps,
            Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory,
        ):
            for line in maps:
                bounds, permissions = line.split()[:2]
                if not permissions.startswith("rw"):
                    continue
                start, end = (int(bound, 16) for bound in bounds.split("-"))
                held |= _in_range(memory, start, end, wanted)
    except PermissionError:
        return None
    return [word for word in wanted if word in held]


def _in_range(memory: Any, start: int, end: int, wanted: list[bytes]) -> set[bytes]:
    chunk, found, tail = 1 << 24, set(), b""
    for at in range(start, end, chunk):
        try:
            memory.seek(at)
            data = tail + memory.read(min(chunk, end - at))
        except OSError:  # never written to, or gone meanwhile
            break
        found |= {word for word in wanted if word in data}
        tail = data[-64:]
    return found
