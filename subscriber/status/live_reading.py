"""What the terminal of ``pgsub up`` shows, computed from the status views. Pure but for the clock.

Rates come from two readings: the launcher's sums now and some seconds ago. A trace of one table::

    at 0 s   d, 10,000 rows copied          no rate yet
    at 1 s   d, 60,000 of 5 of 20 MB        50,000 rows/s, 3 s left
    at 4 s   r                              no copy any more
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from catalog.namespace import qualified_name
from catalog.pg_subscription_rel import SubRelState
from config.monitor_limits import LIVE_RATE_SECONDS
from subscriber.printing import Row
from subscriber.status.stream_figures import lags, work_sums
from workers.process.launcher_client import LauncherStatus


@dataclass(frozen=True, slots=True)
class SubscriptionLine:
    """A subscription: ``rate`` in applied rows/s, ``lag_seconds`` None if it is not known."""

    name: str
    is_enabled: bool
    rate: float
    lag_bytes: int | None
    lag_seconds: float | None


@dataclass(frozen=True, slots=True)
class TableLine:
    """A table; the figures of the copy are None without a running copy.

    ``state`` is a letter of ``srsubstate``; ``rate`` is in copied rows/s.
    """

    subscription: str
    name: str
    state: str
    rows: int | None = None
    share: float | None = None
    rate: float | None = None
    seconds_left: float | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything at one moment. ``tables`` has the unfinished tables first."""

    phase: str
    subscriptions: tuple[SubscriptionLine, ...] = ()
    tables: tuple[TableLine, ...] = ()
    errors: tuple[Row, ...] = ()

    @property
    def states(self) -> Counter[str]:
        """How many tables are in each state."""
        return Counter(table.state for table in self.tables)


@dataclass(slots=True)
class Rates:
    """Rates of growing numbers over the last seconds; each number has a key."""

    _seen: dict[Hashable, deque[tuple[float, float]]] = field(default_factory=dict)

    def rate(self, key: Hashable, value: float, now: float) -> float | None:
        """The growth per second, now that the number is ``value``; None before a second reading.

        A number that falls begins anew, as after the start of another launcher.
        """
        seen = self._seen.setdefault(key, deque())
        if seen and value < seen[-1][1]:
            seen.clear()
        seen.append((now, value))
        while len(seen) > 2 and now - seen[1][0] >= LIVE_RATE_SECONDS:
            seen.popleft()
        then, before = seen[0]
        span = now - then
        return (value - before) / span if span > 0 else None

    def keep(self, keys: set[Hashable]) -> None:
        """Forget every other number."""
        for key in self._seen.keys() - keys:
            del self._seen[key]


def read(
    status: LauncherStatus, rows: Mapping[str, Sequence[Row]], rates: Rates, now: float
) -> Reading:
    """Compute a reading from the views' rows; ``now`` is in seconds since 1970."""
    names = {row["oid"]: row["subname"] for row in rows["pg_subscription"]}
    copies = {(row["pid"], row["relid"]): row for row in rows["pg_stat_progress_copy"]}
    pids = {(worker.subid, worker.relid): worker.pid for worker in status.workers}
    used: set[Hashable] = set()
    tables = []
    for row in rows["pg_subscription_rel"]:
        key = (row["srsubid"], row["srrelid"])
        copy = copies.get((pids.get(key), row["srrelid"]))
        if copy is not None:
            used.add(key)
        tables.append(_table(names.get(row["srsubid"], ""), row, copy, rates, now))
    tables.sort(key=lambda table: table.state == SubRelState.READY)
    subscriptions = _subscriptions(status, rows["pg_subscription"], rates, now)
    rates.keep(used | set(names))
    return Reading(status.phase, subscriptions, tuple(tables), tuple(rows["last_errors"]))


def _table(subscription: str, row: Row, copy: Row | None, rates: Rates, now: float) -> TableLine:
    # From the sync worker, as w and c are stored nowhere else.
    state = str(SubRelState(row["relstate"] or row["srsubstate"]))
    name = qualified_name(row["nspname"], row["relname"])
    if copy is None:
        return TableLine(subscription, name, state)
    copied, total = copy["bytes_processed"] or 0, copy["bytes_total"] or 0
    share = min(copied / total, 1.0) if total else None
    rate = rates.rate((row["srsubid"], row["srrelid"]), copy["tuples_processed"] or 0, now)
    left = None
    if rate and share:
        found = copy["tuples_processed"] or 0
        left = found * (1 - share) / share / rate
    return TableLine(subscription, name, state, copy["tuples_processed"], share, rate, left)


def _subscriptions(
    status: LauncherStatus, subs: Sequence[Row], rates: Rates, now: float
) -> tuple[SubscriptionLine, ...]:
    micros = int(now * 1_000_000)
    behind, work = lags(status, micros), work_sums(status)
    found = []
    for row in subs:
        lag = behind.get(row["oid"])
        applied = _rows(work.get(row["oid"], {}))
        seconds = max(micros - lag.since, 0) / 1e6 if lag and lag.since else None
        found.append(
            SubscriptionLine(
                row["subname"],
                row["subenabled"],
                rates.rate(row["oid"], applied, now) or 0.0,
                lag.lag_bytes if lag else None,
                seconds,
            )
        )
    return tuple(found)


def _rows(work: Mapping[str, Any]) -> int:
    return sum(work.get("rows", {}).values())
