"""One run of everything with a password and a row value that can be searched for.

A publisher that asks for a password, a family with a data directory that was made by somebody with
the usual umask, a copy in ranges, a stream, and the errors that a value can cause. What is said
and what is left behind is collected here; the tests look at it.
"""

from __future__ import annotations

import io
import os
import stat
import uuid
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from catalog.store_sqlite import CatalogStore
from subscriber.publisher import EmbeddedPublisher
from subscriber.status import VIEWS, Format, print_rows
from tests.fix_publisher import Database, new_database
from tests.harness import SETTINGS, Pgsub
from tests.twin import native_rows
from tests.waiting import wait_until
from workers.bgworker import query_launcher
from workers.lake.session import LakeSession

PASSWORD = "planted-7f3aQpassword"
VALUE = "planted9b1cRvalue"
ROWS = 20_000

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
    arguments: list[str] = field(default_factory=list)
    """Argument lists and environments of the family's processes."""
    modes: dict[str, int] = field(default_factory=dict)
    """Permissions of everything below the data directory while rows were under way."""
    spooled: list[int] = field(default_factory=list)
    """Permissions of the spool's open files then."""
    staged: list[Path] = field(default_factory=list)
    staged_after_crash: list[Path] = field(default_factory=list)
    in_memory: list[bytes] | None = None
    """What of the password and ``SURELY_THERE`` was in the lake server's memory; None where that
    may not be read."""
    rows: tuple[Any, Any] = ((), ())
    bytes_left: dict[str, bytes] = field(default_factory=dict)
    """Every file but the lake's own, before DROP."""
    files_left: list[str] = field(default_factory=list)
    """Every file but the lake's own, after DROP."""


class PlantedRun:
    """The run, step by step; ``found`` is filled on the way."""

    def __init__(self, pgsub: Pgsub, server: EmbeddedPublisher) -> None:
        self.pgsub = pgsub
        self.database: Database = new_database(server, "planted", schema="planted")
        self.found = Found()
        self.log = pgsub.data_dir / "log" / "pgsub.log"

    def play(self) -> Found:
        self._prepare()
        self._create({"planted": self._entry("pub")})
        self._wait()
        self.database.run(f"INSERT INTO big VALUES (0, '{VALUE}')")
        self._wait()  # the apply worker knows the table from here on
        self._crash_under_way()
        self._fail_to_connect()
        self._fail_to_apply()
        self.command("disable", "planted")
        self.command("enable", "planted")
        self._look_around()
        self.command("drop", "planted")
        self.found.files_left = [name for name, _ in self._files()]
        return self.found

    def command(self, *words: str, status: int | None = 0) -> str:
        done = self.pgsub.command(*words, status=status)
        self.found.said += [done.stdout, done.stderr]
        return done.stdout + done.stderr

    def _wait(self) -> None:
        self.command("wait", "planted")

    def _prepare(self) -> None:
        rows = f"SELECT i, '{VALUE}' || i FROM generate_series(1, {ROWS}) i"
        self.database.run(
            "CREATE TABLE big (id int PRIMARY KEY, v text)",
            f"INSERT INTO big {rows}",
            "CREATE TABLE typed (id int PRIMARY KEY, v text)",
            "CREATE TABLE keyed (id text PRIMARY KEY, v text)",
            "CREATE TABLE ranged (id int PRIMARY KEY, v text)",
            f"INSERT INTO ranged {rows}",
            "CREATE PUBLICATION pub FOR TABLE big",
            "CREATE PUBLICATION pub_typed FOR TABLE typed",
            "CREATE PUBLICATION pub_keyed FOR TABLE keyed",
            "CREATE PUBLICATION pub_ranged FOR TABLE ranged",
        )
        status = query_launcher(self.pgsub.data_dir)
        assert status is not None
        session = LakeSession(str(status.lake_url), "planted", str(uuid.uuid4()))
        for statement in (
            "CREATE NAMESPACE IF NOT EXISTS lake.planted",
            "CREATE TABLE lake.planted.typed (id INT, v INT) USING iceberg",
            "CREATE TABLE lake.planted.keyed (id STRING, v STRING) USING iceberg",
            "CREATE TABLE lake.planted.ranged (id INT, v INT) USING iceberg",
            f"INSERT INTO lake.planted.keyed VALUES ('{VALUE}', 'old')",
        ):
            session.command(statement, "preparing")
        session.close()

    def _entry(self, publication: str, **entry: Any) -> dict[str, Any]:
        return {"connection": self.database.dsn, "publication": [publication], **entry}

    def _create(self, subscriptions: dict[str, Any], status: int = 0) -> str:
        path = self.pgsub.file({"subscriptions": subscriptions, "settings": LIMITS}, "planted.yaml")
        return self.command("create", str(path), status=status)

    def _crash_under_way(self) -> None:
        """The lake stands still while rows are staged and spooled; then the worker is killed."""
        lake = self.pgsub.lake_server()
        lake.suspend()
        try:
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
            psutil.Process(pid).kill()
        finally:
            lake.resume()
        self.database.run("DELETE FROM big WHERE id % 7 = 0")
        self._wait()
        wait_until(lambda: not self._staged(), 60, lambda: f"nothing is staged: {self._staged()}")
        self.found.staged_after_crash = self._staged()
        self.found.rows = (
            native_rows(self.database, "planted.big"),
            self.pgsub.rows("planted", "big"),
        )

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
            wait_until(lambda name=name: self._is_disabled(name), 90, lambda: log())
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
            found.arguments += [" ".join(process.cmdline()), str(process.environ())]
        found.in_memory = held_in_memory(
            self.pgsub.lake_server().pid, [PASSWORD.encode(), SURELY_THERE]
        )
        found.bytes_left = {name: path.read_bytes() for name, path in self._files()}

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
