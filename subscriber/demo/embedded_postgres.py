"""An embedded PostgreSQL server, for the demo and for the tests.

The programs come in a wheel (PostgreSQL 16 and 18, see ``postgres_programs``) or from a folder
named by the caller. An embedded server

* listens on 127.0.0.1 only, on a free port, with ``wal_level = logical``;
* keeps the data in a temporary folder, unless the caller gives a data directory;
* ends with the process that started the server, even after a kill;
* runs as ``nobody`` when started by root: a PostgreSQL server refuses to run as root.

``initdb`` takes seconds and runs once per version of the wheel. A new server starts from a copy of
the template, with a new system identifier, as after an ``initdb``. The copy needs ``pg_resetwal``.
Programs of a named folder may lack ``pg_resetwal``: with those, ``initdb`` creates every cluster.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import importlib.metadata
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Self

import psycopg
from psycopg import conninfo

from catalog.errcodes import ConnectionFailure, UndefinedObject
from config.monitor_limits import (
    POSTGRES_CONNECT_SECONDS,
    POSTGRES_START_AGAIN_POLL_SECONDS,
    POSTGRES_START_AGAIN_SECONDS,
    POSTGRES_START_POLL_SECONDS,
    POSTGRES_START_SECONDS,
    POSTGRES_STOP_SECONDS,
)
from subscriber.demo.postgres_programs import (
    DISTRIBUTION,
    cache_dir,
    locked,
    server_user,
    wheel_programs,
)
from workers.parent_death import dying_with_parent

STOP_SIGNALS: Final = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}

StopMode = Literal["smart", "fast", "immediate"]

BASE_CONF: Final[Mapping[str, str | int]] = {
    "wal_level": "logical",
    "max_wal_senders": 32,
    "max_replication_slots": 64,
    "max_connections": 100,
    "max_worker_processes": 32,
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "logging_collector": "off",
    "log_line_prefix": "%m [%p] %a ",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # The data are temporary; a benchmark sets other values.
    "fsync": "off",
    "max_wal_size": "4GB",
}


class EmbeddedPublisher:
    """A server: ``start``, then use ``dsn``, ``execute`` and ``psql``, then ``stop``.

    Parameters:
        version: 16 or 18; with ``programs`` their version.
        port: 0 takes a free port; a ``restart`` keeps the port.
        data_dir: an existing or new cluster, kept on ``stop``; None creates a folder that ``stop``
            removes.
        conf: settings over ``BASE_CONF``, by PostgreSQL's names.
        password: of the superuser ``postgres``; None lets every local connection in.
        programs: the folder with ``initdb`` and ``postgres``; None takes the wheel's.

    As a context manager the server starts on entry and stops on exit.
    """

    def __init__(
        self,
        version: int = 18,
        *,
        port: int = 0,
        data_dir: Path | None = None,
        conf: Mapping[str, str | int] | None = None,
        password: str | None = None,
        programs: Path | None = None,
    ) -> None:
        self.version = version
        self.port = port
        self.password = password
        self._conf = {**BASE_CONF, **(conf or {})}
        self._given_dir = data_dir
        self._scratch: contextlib.ExitStack | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._programs = programs
        self._dir: Path | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def bin_dir(self) -> Path:
        """The folder of the server's programs; the wheel has ``psql``, ``pg_recvlogical`` … too."""
        return self._programs or wheel_programs(self.version)

    @property
    def data_dir(self) -> Path:
        """The cluster's data directory. Raises 55000 before the first ``start``."""
        if self._dir is None:
            raise UndefinedObject("the embedded publisher has not been started")
        return self._dir

    @property
    def log_file(self) -> Path:
        """The server's log."""
        return self.data_dir / "server.log"

    @property
    def pid(self) -> int | None:
        """The postmaster's pid, None without a running server."""
        if self._process is None or self._process.poll() is not None:
            return None
        return self._process.pid

    @property
    def dsn(self) -> str:
        """A libpq connection string of the superuser for database ``postgres``."""
        return self.conninfo()

    def conninfo(self, dbname: str = "postgres", **params: str | int) -> str:
        """A libpq connection string; ``params`` are added or replace parameters."""
        values: dict[str, str | int] = {
            "host": "127.0.0.1",
            "port": self.port,
            "user": "postgres",
            "dbname": dbname,
        }
        if self.password is not None:
            values["password"] = self.password
        return conninfo.make_conninfo("", **{**values, **params})

    def start(self) -> None:
        """Create a missing cluster, start the server, wait for the first answer.

        Raises:
            ConnectionFailure: the server ended or did not answer in time; DETAIL has the last log
                lines.
        """
        if self.pid is not None:
            return
        if self._dir is None:
            self._create()
        _start_retrying(self._spawn, self._await_ready)
        atexit.register(self.stop)

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server and remove a temporary folder. Safe to call twice."""
        atexit.unregister(self.stop)
        self._halt(mode)
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = self._dir = None

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop, and start again with data and port kept; ``immediate`` is a crash with recovery."""
        self._halt(mode)
        self.start()

    def kill(self) -> None:
        """SIGKILL the postmaster, like a crash of the machine; ``start`` recovers."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def halt(self, mode: StopMode = "fast") -> None:
        """Stop the server but keep the data for the next ``start``."""
        self._halt(mode)

    def connect(self, dbname: str = "postgres", **params: str | int) -> psycopg.Connection:
        """An autocommit connection."""
        return psycopg.connect(self.conninfo(dbname, **params), autocommit=True)

    def execute(
        self, statement: str, args: Sequence[Any] | None = None, *, dbname: str = "postgres"
    ) -> list[tuple[Any, ...]]:
        """Run SQL on a new connection and return the rows of the last result, if any.

        Several statements separated by semicolons are a single transaction; with ``args`` only a
        single statement is allowed.
        """
        with self.connect(dbname) as connection:
            cursor = connection.execute(statement.encode(), args)
            while cursor.nextset():
                pass
            return cursor.fetchall() if cursor.description else []

    def psql(self, script: str, *, dbname: str = "postgres") -> str:
        """Run a script with the version's ``psql``: unaligned tuples, stopping at errors.

        Raises ConnectionFailure with psql's message.
        """
        words = [str(self.bin_dir / "psql"), "-XAtq", "-v", "ON_ERROR_STOP=1"]
        result = subprocess.run(
            [*words, "-d", self.conninfo(dbname)], input=script, capture_output=True, text=True
        )
        if result.returncode:
            raise ConnectionFailure("psql failed", detail=result.stderr.strip())
        return result.stdout.rstrip("\n")

    def create_database(self, dbname: str) -> None:
        """``CREATE DATABASE``, the name taken verbatim."""
        self.execute('CREATE DATABASE "{}"'.format(dbname.replace('"', '""')))

    def _create(self) -> None:
        stack = contextlib.ExitStack()
        if self._given_dir is None:
            self._dir = stack.enter_context(_scratch_folder()) / "data"
        else:
            self._dir = self._given_dir
        self._scratch = stack if self._given_dir is None else None
        if not (self._dir / "PG_VERSION").exists():
            if self._programs is None:
                _copy_template(_template(self.version, self.bin_dir), self._dir)
                _run_tool(self.bin_dir / "pg_resetwal", "-f", "-D", str(self._dir))
            else:
                self._dir.mkdir(mode=0o700, parents=True, exist_ok=True)
                _initdb(self._programs, self._dir)
            if self.password is not None:
                self._set_password(self.password)
        self.port = self.port or _free_port()

    def _set_password(self, password: str) -> None:
        """Require the password; set while no server runs and no client can connect."""
        literal = password.replace("'", "''")
        statement = f"ALTER ROLE postgres PASSWORD '{literal}'\n".encode()
        _run_tool(
            self.bin_dir / "postgres", "--single", "-D", str(self.data_dir), "postgres",
            stdin=statement,
        )  # fmt: skip
        rules = (f"host {what} all 127.0.0.1/32 scram-sha-256" for what in ("all", "replication"))
        (self.data_dir / "pg_hba.conf").write_text("\n".join(rules) + "\n")

    def _spawn(self) -> None:
        words = [str(self.bin_dir / "postgres"), "-D", str(self.data_dir), "-p", str(self.port)]
        for name, value in self._conf.items():
            words += ["-c", f"{name}={value}"]
        user = server_user()
        as_user = None if user is None else (user.pw_uid, user.pw_gid)
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                dying_with_parent(words, signal.SIGQUIT, user=as_user),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.data_dir,
                start_new_session=True,  # the terminal's Ctrl-C reaches the starting process alone
            )  # fmt: skip

    def _await_ready(self) -> None:
        deadline = time.monotonic() + POSTGRES_START_SECONDS
        while time.monotonic() < deadline:
            if self.pid is None:
                self._process = None
                raise ConnectionFailure("the embedded publisher ended", detail=self._log_tail())
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self.dsn, connect_timeout=POSTGRES_CONNECT_SECONDS).close()
                return
            time.sleep(POSTGRES_START_POLL_SECONDS)
        raise ConnectionFailure(
            f"the embedded publisher did not answer in {POSTGRES_START_SECONDS:.0f} s",
            detail=self._log_tail(),
        )

    def _halt(self, mode: StopMode) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for sig in (STOP_SIGNALS[mode], signal.SIGQUIT, signal.SIGKILL):
            if process.poll() is None:
                process.send_signal(sig)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POSTGRES_STOP_SECONDS)
                return

    def _log_tail(self) -> str:
        try:
            return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-15:])
        except OSError:
            return ""


def _start_retrying(spawn: Callable[[], None], await_ready: Callable[[], None]) -> None:
    """Start; after a kill the old children may hold the shared memory for another moment."""
    deadline = time.monotonic() + POSTGRES_START_AGAIN_SECONDS
    while True:
        spawn()
        try:
            return await_ready()
        except ConnectionFailure as error:
            busy = "shared memory block" in (error.detail or "").rsplit("FATAL", 1)[-1]
            if not busy or time.monotonic() > deadline:
                raise
            time.sleep(POSTGRES_START_AGAIN_POLL_SECONDS)


def _template(version: int, programs: Path) -> Path:
    """A cluster created by ``initdb`` once per version of the wheel and user."""
    release = importlib.metadata.version(DISTRIBUTION)
    template = cache_dir() / f"template-{version}-{release}"
    with locked(template.with_name(f"{template.name}.lock")):
        if not template.exists():
            partial = Path(tempfile.mkdtemp(prefix="initdb-", dir=template.parent))
            _initdb(programs, partial)
            partial.rename(template)
    return template


def _initdb(programs: Path, folder: Path) -> None:
    """Create a cluster in an empty folder."""
    _give_to_server(folder)
    _run_tool(
        programs / "initdb", "-D", str(folder), "-U", "postgres", "--auth=trust",
        "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions",
    )  # fmt: skip


def _copy_template(template: Path, target: Path) -> None:
    """Copy a cluster and write another system identifier into its control file.

    The identifier is the first 8 bytes of ``pg_control``; ``pg_resetwal`` then renews checksum
    and WAL. With equal identifiers all clusters would look like a single server to pgsub.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(template, target, symlinks=True)
    target.chmod(0o700)
    with (target / "global" / "pg_control").open("r+b") as control:
        control.write(secrets.randbits(62).to_bytes(8, sys.byteorder))
    for path in (target, *target.rglob("*")):
        _give_to_server(path)


def _run_tool(program: Path, *args: str, stdin: bytes | None = None) -> None:
    """Run a PostgreSQL program as the server's user; raises 08006 with the program's message."""
    result = subprocess.run(
        [str(program), *args], input=stdin, capture_output=True, cwd="/", **_unprivileged()
    )
    if result.returncode:
        message = (result.stderr or result.stdout).decode(errors="replace").strip()
        raise ConnectionFailure(f"{program.name} failed", detail=message)


def _unprivileged() -> dict[str, Any]:
    """Arguments of ``subprocess`` to run a child as the server's user."""
    user = server_user()
    if user is None:
        return {}
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _give_to_server(path: Path) -> None:
    user = server_user()
    if user is not None:
        os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)


@contextlib.contextmanager
def _scratch_folder() -> Iterator[Path]:
    """A folder for a server's data, removed at the end, or by the next server's start.

    The starting process holds the folder's lock file: a free lock means that the process has died.
    """
    base = cache_dir() / "servers"
    base.mkdir(exist_ok=True)
    with locked(base / ".lock"):
        _sweep(base)
        folder = Path(tempfile.mkdtemp(prefix="s-", dir=base))
        if server_user() is not None:
            folder.chmod(0o755)
        lock = (base / f"{folder.name}.lock").open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        Path(lock.name).unlink(missing_ok=True)
        lock.close()


def _sweep(base: Path) -> None:
    """Remove folders of dead processes; the postmasters died together with the processes."""
    for path in base.glob("s-*.lock"):
        with path.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            shutil.rmtree(path.with_suffix(""), ignore_errors=True)
            path.unlink(missing_ok=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
