"""The file of the catalog: SQLite in WAL mode, every commit on disk.

``synchronous=FULL`` because positions are promises: the flush position in a feedback message, the
generation of a worker and the state ``s`` of a table must survive a power cut. All processes of a
data directory open the file; a writer waits up to ten seconds for a different writer.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Final, Self, TypeVar

from catalog.errcodes import DISK_FULL, UNDEFINED_FILE, IoError, ObjectNotInPrerequisiteState

FILE_NAME: Final = "catalog.db"
BUSY_TIMEOUT_SECONDS: Final = 10.0
SCHEMA_VERSION: Final = 24

_SCRIPTS: Final = {
    0: ("schema.sql",),
    **{
        version: tuple(f"upgrade_{n}.sql" for n in range(version + 1, SCHEMA_VERSION + 1))
        for version in range(4, SCHEMA_VERSION)
    },
}
"""The version of a file (0: new) → the scripts that lead to ``SCHEMA_VERSION``, in order."""

Row = TypeVar("Row")


def read_queries() -> dict[str, str]:
    """``queries.sql`` as name → statement."""
    text = resources.files("catalog").joinpath("queries.sql").read_text(encoding="utf-8")
    blocks = text.split("-- name: ")[1:]
    return {name: sql.strip() for name, _, sql in (block.partition("\n") for block in blocks)}


def prepare_file(data_dir: Path) -> Path:
    """The catalog file of ``data_dir``, which only the owner can read."""
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = data_dir / FILE_NAME
        path.touch(mode=0o600, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise PermissionError(13, "Permission denied", str(path))
    except OSError as error:
        raise IoError(
            f'could not open data directory "{data_dir}": {error.strerror}',
            hint="Name a directory you may write to with --data-dir or PGSUB_DATA_DIR.",
        ) from None
    return path


@contextmanager
def sqlite_errors(path: str) -> Iterator[None]:
    """Turn SQLite's errors into ``IoError``; the messages name no values."""
    try:
        yield
    except sqlite3.Error as error:
        full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
        raise IoError(
            f'could not use the catalog "{path}": {error}',
            sqlstate=DISK_FULL if full else None,
        ) from error


_SQL: Final = read_queries()


class CatalogFile:
    """The open file, the transactions and the statements of ``queries.sql``.

    Safe to use from several threads. Every writing method is a transaction, unless the method runs
    inside ``transaction()``. A failing disk raises ``IoError`` (58030; 53100 for a full disk).
    """

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self._connection = connection
        self._path = path
        self._lock = threading.RLock()
        self._depth = 0

    @property
    def data_dir(self) -> Path | None:
        """The folder of the catalog; None for a catalog in memory."""
        return None if self._path == ":memory:" else Path(self._path).parent

    @classmethod
    def open(cls, data_dir: Path | str, *, must_exist: bool = False) -> Self:
        """Open the catalog of ``data_dir``; ``":memory:"`` is a catalog without a file.

        A missing folder or file is made, but with ``must_exist`` a missing catalog is 58P01.
        """
        if must_exist and not (Path(data_dir) / FILE_NAME).exists():
            raise IoError(
                f'"{data_dir}" is not a data directory of pgsub',
                hint="Name one with --data-dir or PGSUB_DATA_DIR; pgsub up makes one.",
                sqlstate=UNDEFINED_FILE,
            )
        path = ":memory:" if str(data_dir) == ":memory:" else str(prepare_file(Path(data_dir)))
        with sqlite_errors(path):
            connection = sqlite3.connect(
                path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False
            )
            connection.row_factory = sqlite3.Row
            try:
                store = cls(connection, path)
                store._configure()
            except BaseException:
                connection.close()
                raise
        return store

    def close(self) -> None:
        """Close the file; no method works afterwards."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction with the only writer. Inside a transaction, the call joins it."""
        with self._lock, sqlite_errors(self._path):
            if self._depth:
                yield
                return
            self._connection.execute("BEGIN IMMEDIATE")
            self._depth = 1
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            finally:
                self._depth = 0

    def data_version(self) -> int:
        """A number that grows with every change of the catalog, by any process."""
        with self._lock, sqlite_errors(self._path):
            others: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
            return others + self._connection.total_changes

    def _configure(self) -> None:
        run = self._connection.execute
        if run("PRAGMA journal_mode").fetchone()[0] == "delete":
            run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")
        run("PRAGMA foreign_keys = ON")
        with self.transaction():
            version = run("PRAGMA user_version").fetchone()[0]
            scripts = _SCRIPTS.get(version)
            if scripts is not None:
                for script in scripts:
                    text = resources.files("catalog").joinpath(script).read_text(encoding="utf-8")
                    for statement in text.split(";\n"):
                        run(statement)
                run(f"PRAGMA user_version = {SCHEMA_VERSION}")
            elif version != SCHEMA_VERSION:
                raise ObjectNotInPrerequisiteState(
                    "data directory was made by an incompatible version of pgsub",
                    detail=f"Its catalog has version {version}, this is {SCHEMA_VERSION}.",
                    hint="Use the version that made it, or another --data-dir.",
                )

    def _all(self, query: str, make: Callable[[sqlite3.Row], Row], **values: object) -> list[Row]:
        with self._lock, sqlite_errors(self._path):
            return [make(row) for row in self._connection.execute(_SQL[query], values)]

    def _one(self, query: str, make: Callable[[sqlite3.Row], Row], **values: object) -> Row | None:
        rows = self._all(query, make, **values)
        return rows[0] if rows else None

    def _write(self, query: str, values: Mapping[str, object]) -> int:
        """Run a writing statement; the number of changed rows."""
        with self.transaction():
            return self._connection.execute(_SQL[query], values).rowcount
