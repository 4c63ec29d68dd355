"""Measures the demo's progress: states of tables, rates, lag.

Rates and lag are measured from outside. The publisher reports the positions of the written WAL and
of the subscriber's confirmations (``pg_replication_slots.confirmed_flush_lsn``), and the workload
counts the changed rows before every position.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import SubscriptionRel
from catalog.store_sqlite import CatalogStore
from config.monitor_limits import DEMO_ERROR_SECONDS, DEMO_RATE_SECONDS, DEMO_STATUS_SECONDS
from subscriber.demo.log_errors import LastErrors
from workers.process.launcher_client import LauncherStatus, query_launcher

COPYING: Final = ("i", "d")
SETTLED: Final = ("s", "r")


@dataclass(frozen=True, slots=True)
class Tick:
    """A moment of the publisher: the WAL position and the workload's count of changed rows."""

    moment: float
    lsn: LSN
    rows: int


@dataclass(frozen=True, slots=True)
class TableProgress:
    """A table: ``state`` is '' while unknown; ``rate`` in rows/s, ``eta`` in seconds."""

    name: str
    state: str
    copied: int
    total: int
    rate: float | None
    eta: float | None


@dataclass(frozen=True, slots=True)
class Reading:
    """All measurements of a moment. ``lag_bytes`` and ``lag_seconds`` are None without a slot.

    ``error`` is the log's last error about a table not yet copied, or about the stream.
    """

    elapsed: float
    phase: str
    tables: tuple[TableProgress, ...]
    applied_rate: float
    lag_bytes: int | None
    lag_seconds: float | None
    error: str | None = None

    @property
    def is_synced(self) -> bool:
        """Is every table in state r?"""
        return bool(self.tables) and all(table.state == "r" for table in self.tables)


@dataclass(slots=True)
class _Copy:
    started: float
    ended: float | None = None


@dataclass(slots=True)
class Meter:
    """Takes the measurements; ``sizes`` has the tables' numbers of rows.

    ``position`` returns the publisher's WAL position and the confirmed position of the
    subscription's slot, ``changed`` the number of rows changed by the workload.
    """

    data_dir: Path
    subscription: str
    sizes: Mapping[str, int]
    position: Callable[[], tuple[LSN, LSN | None]]
    changed: Callable[[], int]
    clock: Callable[[], float] = time.monotonic
    _start: float = field(init=False)
    _ticks: deque[Tick] = field(init=False, default_factory=deque)
    _applied: deque[tuple[float, int]] = field(init=False, default_factory=deque)
    _before: int = field(init=False, default=0)
    _copies: dict[str, _Copy] = field(init=False, default_factory=dict)
    _store: CatalogStore | None = field(init=False, default=None)
    _log: LastErrors = field(init=False)

    def __post_init__(self) -> None:
        self._start = self.clock()
        self._log = LastErrors(self.data_dir)

    def read(self) -> Reading:
        """Take a reading; call a few times a second."""
        now = self.clock()
        status = self._launcher()
        lsn, confirmed = self.position()
        self._ticks.append(Tick(now, lsn, self.changed()))
        lag_seconds, rate = self._follow(now, confirmed)
        rels = self._rels(status is not None)
        return Reading(
            elapsed=now - self._start,
            phase=status.phase if status else "starting",
            tables=self._tables(now, rels, status),
            applied_rate=rate,
            lag_bytes=None if confirmed is None else max(0, lsn - confirmed),
            lag_seconds=lag_seconds,
            error=self._error(now, rels),
        )

    def _error(self, now: float, rels: Sequence[SubscriptionRel]) -> str | None:
        """The newest error about an unfinished table or the stream, with the table's name."""
        self._log.read(now)
        unfinished = {rel.srrelid: rel for rel in rels if rel.srsubstate not in SETTLED}
        for error in sorted(self._log.errors.values(), key=lambda error: -error.moment):
            rel = unfinished.get(error.relid)
            recent = error.relid == 0 and now - error.moment < DEMO_ERROR_SECONDS
            if rel is not None or recent:
                table = f'table "{rel.relname}": ' if rel else ""
                return f"{table}{error.text}" + (f" (HINT: {error.hint})" if error.hint else "")
        return None

    def _launcher(self) -> LauncherStatus | None:
        try:
            return query_launcher(self.data_dir, timeout=DEMO_STATUS_SECONDS)
        except (ReplicationError, OSError):
            return None

    def _follow(self, now: float, confirmed: LSN | None) -> tuple[float | None, float]:
        """Seconds since the oldest unconfirmed moment, and rows confirmed per second."""
        if confirmed is None:
            return None, 0.0
        while self._ticks and self._ticks[0].lsn <= confirmed:
            self._before = self._ticks.popleft().rows
        lag = now - self._ticks[0].moment if self._ticks else 0.0
        self._applied.append((now, self._before))
        while self._applied[0][0] < now - DEMO_RATE_SECONDS:
            self._applied.popleft()
        (then, rows), span = self._applied[0], now - self._applied[0][0]
        return lag, (self._before - rows) / span if span > 0 and then < now else 0.0

    def _tables(
        self, now: float, found_rels: Sequence[SubscriptionRel], status: LauncherStatus | None
    ) -> tuple[TableProgress, ...]:
        rels = {rel.relname: rel for rel in found_rels}
        workers = {worker.relid: worker for worker in (status.workers if status else ())}
        found = []
        for name, total in self.sizes.items():
            rel = rels.get(name)
            worker = workers.get(rel.srrelid) if rel else None
            state = str(rel.srsubstate.value) if rel else ""
            if state == "d" and worker and worker.relstate in ("w", "c"):
                state = worker.relstate
            progress = worker.progress if worker else None
            found.append(self._progress(now, name, total, state, progress))
        return tuple(found)

    def _progress(
        self, now: float, name: str, total: int, state: str, progress: Mapping[str, Any] | None
    ) -> TableProgress:
        copied = 0 if state in ("", *COPYING) else total
        if state == "d":
            done, ranges = (progress or {}).get("done", 0), (progress or {}).get("ranges", 0)
            copied = int(total * done / ranges) if ranges else 0
            self._copies.setdefault(name, _Copy(now))
        copy = self._copies.get(name)
        if copy is None:
            return TableProgress(name, state, copied, total, None, None)
        if copied == total and copy.ended is None:
            copy.ended = now
        span = (copy.ended or now) - copy.started
        rate = copied / span if span > 0 and copied else None
        eta = (total - copied) / rate if rate and copied < total else None
        return TableProgress(name, state, copied, total, rate, eta)

    def _rels(self, running: bool) -> list[SubscriptionRel]:
        """The stored states; none before a launcher has created the catalog."""
        if self._store is None:
            if not running:
                return []
            self._store = CatalogStore.open(self.data_dir)
        sub = self._store.subscription_by_name(self.subscription)
        return self._store.rels(sub.oid) if sub else []

    def close(self) -> None:
        """Close the catalog."""
        if self._store is not None:
            self._store.close()
            self._store = None
