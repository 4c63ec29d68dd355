"""``lake.pg_catalog``: the views of ``pgsub status`` as tables of the lake, for any reader.

The tables have two writers. ``pgsub sql`` writes the tables before a query that names
``pg_catalog``: the query sees the present. And a short-lived process of the launcher writes the
tables after a change, at most once in ``status_tables_interval``. The launcher itself has no Spark.
The launcher compares its views with the digests of the last write (``status_tables.json`` in the
data directory, kept by both writers) and has a process forked only after a difference.

Keepalives move times, and positions as well: on most publishers somebody writes WAL. A write for
each of them would be half of what an idle installation costs. So new times alone are never written,
and new positions alone are written ten minutes after the last write. Both are written together with
the next change.

A trace, one subscription, interval 60 s::

     0  launcher starts               no table is written yet
    60  six views differ              forked: writes them, {view: digest} to status_tables.json
    80  keepalive: last_msg_send_time
   120  views differ in times only    no process
   125  keepalive: received_lsn       no process before 660
   130  pgsub sql "… pg_catalog …"    writes pg_stat_subscription, for its times
   180  a batch was applied           forked: the positions of three views
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from catalog.errcodes import InternalError, ReplicationError
from catalog.store_sqlite import CatalogStore
from config.limits import KEEPALIVE_POSITIONS_SECONDS, SESSION_IDLE_SECONDS
from subscriber.printing import Row, json_value
from subscriber.status.views import VIEWS, View, Workers
from workers.process import log as server_log
from workers.process.launcher_client import query_launcher

if TYPE_CHECKING:
    from workers.lake.sql.status_tables import StatusTable

log = logging.getLogger(__name__)

SCHEMA: Final = "pg_catalog"
FILE_NAME: Final = "status_tables.json"

_TIMES: Final = frozenset({"last_msg_send_time", "last_msg_receipt_time", "latest_end_time"})
"""Columns that every keepalive moves."""
_POSITIONS: Final = frozenset({"received_lsn", "latest_end_lsn", "max_flush_lsn"})
"""Columns that a keepalive moves if anything was written on the publisher."""

# Content


def changed_views(
    store: CatalogStore, workers: Workers, data_dir: Path, now: float | None = None
) -> list[str]:
    """The views to write now: those that differ from the last write in more than times.

    None if all of them differ in positions only, and the last write is younger than ten minutes.
    ``now`` is Unix time.
    """
    written, at = _read_digests(data_dir)
    found = {name: _view_digests(view, view.rows(store, workers)) for name, view in VIEWS.items()}
    differ = [name for name, digests in found.items() if written.get(name) != digests]
    # Without the positions, which are the second digest.
    changed = any(written.get(name, [""])[0] != found[name][0] for name in differ)
    waited = (time.time() if now is None else now) - at
    return differ if changed or waited >= KEEPALIVE_POSITIONS_SECONDS else []


def mentioned_views(query: str) -> list[str]:
    """The views named in a query: none without the schema's name, all without a view's name."""
    text = query.lower()
    if SCHEMA not in text:
        return []
    return [name for name in VIEWS if name in text] or list(VIEWS)


def write_views(
    url: str, names: Iterable[str], store: CatalogStore, workers: Workers, data_dir: Path
) -> None:
    """Write the present rows of the views, where the lake has other rows.

    On an embedded lake server the rows become files here, and Spark has nothing to do. For the
    tables that are left, the session is one that an earlier write or a copy left, and stays open
    for the next: a session of every write costs the lake server more than the write. While the
    write runs, the session is in no list of the catalog. After a killed write the launcher's watch
    of the lake server closes the session.
    """
    from workers.lake.api.session_catalogs import close_catalogs_of
    from workers.lake.files.status_files import write_status_files
    from workers.lake.sql.status_tables import write_status_tables

    tables: dict[str, StatusTable] = {}
    digests: dict[str, list[str]] = {}
    for name in names:
        rows = VIEWS[name].rows(store, workers)
        tables[name] = status_table(VIEWS[name], rows)
        digests[name] = _view_digests(VIEWS[name], rows)
    if for_spark := write_status_files(url, tables):
        write_status_tables(
            url,
            for_spark,
            session=store.take_idle_spark_session(since=time.time() - SESSION_IDLE_SECONDS),
            leave=lambda user_id, session_id: store.hand_over_spark_session(
                user_id, session_id, time.time()
            ),
            close_catalogs=partial(close_catalogs_of, url),
        )
    _store_digests(data_dir, digests)


def status_table(view: View, rows: Sequence[Row]) -> StatusTable:
    """A view's rows with the columns' types, and their digest."""
    import pyarrow as pa

    from workers.lake.sql.status_tables import StatusTable

    types = {
        "oid": pa.int64(),
        "int4": pa.int32(),
        "int8": pa.int64(),
        "bool": pa.bool_(),
        "timestamptz": pa.timestamp("us", "UTC"),
        "text[]": pa.list_(pa.string()),
        "text": pa.string(),
    }
    arrays: list[Any] = [
        pa.array([_value(row[name], kind) for row in rows], types[kind])
        for name, kind in view.types.items()
    ]
    rows_digest = _digest(_lines(view, rows))
    return StatusTable(pa.table(arrays, names=list(view.columns)), _columns(view), rows_digest)


def _value(value: Any, kind: str) -> Any:
    """A value for JSON, but times stay times; in a text column other values become JSON text."""
    if value is None or kind == "timestamptz":
        return value
    shown = json_value(value)
    if kind == "text" and not isinstance(shown, str):
        return json.dumps(shown, ensure_ascii=False)
    return shown


def _view_digests(view: View, rows: Sequence[Row]) -> list[str]:
    """The digests of a view for ``status_tables.json``: without all that keepalives move, and
    without times alone."""
    columns = _columns(view)
    return [
        _digest([columns, *_lines(view, rows, without=without)])
        for without in (_TIMES | _POSITIONS, _TIMES)
    ]


def _columns(view: View) -> str:
    """A digest of the columns' names and types."""
    return _digest([f"{name} {kind}" for name, kind in view.types.items()])


def _lines(view: View, rows: Sequence[Row], without: frozenset[str] = frozenset()) -> list[str]:
    """The rows as sorted text: rows have no order."""
    names = [name for name in view.columns if name not in without]
    return sorted(json.dumps([json_value(row[name]) for name in names]) for row in rows)


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _read_digests(data_dir: Path) -> tuple[dict[str, list[str]], float]:
    """The digests of the last write, and its Unix time.

    Nothing if unknown, or as an older pgsub wrote them: all views are written again.
    """
    path = data_dir / FILE_NAME
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        at = path.stat().st_mtime
    except (OSError, ValueError):
        return {}, 0.0
    if not isinstance(found, dict) or not all(isinstance(each, list) for each in found.values()):
        return {}, 0.0
    return found, at


def _store_digests(data_dir: Path, digests: Mapping[str, list[str]]) -> None:
    path = data_dir / FILE_NAME
    fresh = path.with_name(f"{FILE_NAME}.{os.getpid()}")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(json.dumps(_read_digests(data_dir)[0] | dict(digests)))
        fresh.replace(path)
    except OSError as error:  # a full disk: the next time all views are written again
        log.debug("action=status_tables could not keep digests: %s", error.strerror)


# The launcher's side


class ForkedProcess(Protocol):
    """The process that writes the tables."""

    def poll(self) -> int | None:
        """The exit status, None before the end."""

    def kill(self) -> None:
        """SIGKILL."""

    def wait(self) -> int:
        """Wait for the end; the exit status."""


class StatusTables:
    """Decides when the launcher has the tables written; the launcher's loop calls ``poll``.

    ``changed`` returns the changed views, ``start`` forks a process with the given arguments.
    """

    def __init__(
        self,
        changed: Callable[[], Sequence[str]],
        start: Callable[[list[str]], ForkedProcess],
        now: float,
    ) -> None:
        self._changed = changed
        self._start = start
        self._last = now
        self._process: ForkedProcess | None = None
        self._failed = False

    def poll(self, now: float, interval: float, url: str | None) -> None:
        """Note the end of a process; start a process if the interval is over and a view changed."""
        if self._process is not None:
            status = self._process.poll()
            if status is None:
                return
            self._process, self._failed = None, status != 0
        if not interval or now - self._last < interval:
            return
        self._last = now
        if url is None:
            return  # the lake is down; the loop must not wake again and again
        try:
            names = self._changed()
        except ReplicationError:
            return  # the catalog cannot be read: the launcher logs the error at its next look
        if names:
            again = ["--again"] if self._failed else []
            try:
                self._process = self._start([url, *again, *names])
            except OSError as error:
                log.warning("action=status_tables could not fork: %s", error.strerror)

    def next_deadline(self, interval: float) -> float | None:
        """When the next ``poll`` is due; the end of a process wakes the loop anyway."""
        return self._last + interval if interval and self._process is None else None

    def stop(self) -> None:
        """Kill a running process: an interrupted write leaves the old tables."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def main(argv: Sequence[str]) -> int:
    """Run in the forked process: data directory, URL, views; 1 if the tables were not written.

    With ``--again`` the last process failed too, and has logged the reason.
    """
    data_dir, url, words = Path(argv[0]), argv[1], argv[2:]
    server_log.setup("status tables", data_dir)
    store = CatalogStore.open(data_dir, must_exist=True)
    try:
        status = query_launcher(data_dir)
        names = [name for name in words if name in VIEWS]
        write_views(url, names, store, status.workers if status else (), data_dir)
    except Exception as error:
        if "--again" not in words:
            server_log.report(_as_replication_error(error), action="status_tables")
        return 1
    finally:
        store.close()
    return 0


def _as_replication_error(error: Exception) -> ReplicationError:
    if isinstance(error, ReplicationError):
        return error
    return InternalError(f"unexpected {type(error).__name__} while writing status tables")
