"""The metrics of ``/metrics``, computed at a scrape from the rows of the status views.

Nothing is collected between two scrapes. Every figure comes from a view (``status.views``), from
the launcher's status (the work of workers, ``work_done``), from a publisher (``publisher_slots``),
or from the kernel (``processes``). Names are Prometheus': base units, ``_total`` for counters. LSNs
are bytes since 0/0. A label holds the name of a subscription or a word of a fixed list; with
``metrics_per_table`` also the name of a table. No error text, no connection and no value of a row
is ever part of a metric.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import Metric

from catalog.lake_maintenance import UPKEEP
from catalog.namespace import qualified_name
from catalog.pg_stat_subscription_stats import ColumnChangeKind, ConflictType
from catalog.pg_subscription_rel import SubRelState
from subscriber.printing import Row
from subscriber.status.processes import ProcessUse
from subscriber.status.publisher_slots import SlotAnswer
from subscriber.status.stream_figures import lags, lake_files, work_sums
from workers.process.launcher_client import LauncherStatus
from workers.process.work_done import BUCKETS, DURATIONS, OPERATIONS

VIEW_NAMES: Final = (
    "pg_subscription",
    "pg_subscription_rel",
    "pg_stat_subscription",
    "pg_stat_subscription_stats",
    "pg_stat_progress_copy",
    "last_errors",
    "lake_maintenance",
    "spools",
)
"""The views that a scrape reads."""

_WAL_STATUS: Final = ("reserved", "extended", "unreserved", "lost")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a scrape shows. ``rows`` has the rows of every view, ``slots`` is by subid.

    ``now`` is in microseconds since 1970. ``processes`` is the use by process and subscription.
    """

    now: int
    status: LauncherStatus
    rows: Mapping[str, Sequence[Row]]
    slots: Mapping[int, SlotAnswer]
    processes: Mapping[tuple[str, str], ProcessUse]
    versions: Mapping[str, str]
    per_table: bool = False

    def subscriptions(self) -> Iterator[tuple[str, Row]]:
        """Every subscription by name."""
        for row in self.rows["pg_subscription"]:
            yield row["subname"], row

    def collect(self) -> Iterator[Metric]:
        """All metrics: the one method that a collector needs."""
        yield from _launcher(self)
        yield from _positions(self)
        yield from _lag(self)
        yield from _work(self)
        yield from _spools(self)
        yield from _slots(self)
        yield from _tables(self)
        yield from _errors(self)
        yield from _lake(self)
        yield from _upkeep(self)
        yield from _processes(self)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"pgsub_{name}", text, labels=labels)


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"pgsub_{name}", text, labels=labels)


def _launcher(of: Snapshot) -> Iterator[Metric]:
    info = InfoMetricFamily("pgsub_build", "Versions of pgsub, Spark and Iceberg.")
    info.add_metric([], dict(of.versions))
    yield info
    phase = _gauge("launcher_phase", "1 for the launcher's phase, else 0.", "phase")
    for word in ("starting", "running", "stopping"):
        phase.add_metric([word], word == of.status.phase)
    yield phase
    start = _gauge("launcher_start_time_seconds", "Start of the launcher, in seconds since 1970.")
    start.add_metric([], of.status.start_time / 1e6)
    yield start
    lake = _gauge("lake_server_up", "1 while the lake server accepts connections.")
    lake.add_metric([], of.status.lake_url is not None)
    yield lake
    restarts = _counter("lake_server_restarts", "Starts of the lake server after the first.")
    restarts.add_metric([], of.status.lake_restarts)
    yield restarts
    enabled = _gauge("subscription_enabled", "1 for an enabled subscription.", "subname")
    running = _gauge("subscription_worker_up", "1 while an apply worker runs.", "subname")
    applying = {row.subid for row in of.status.workers if not row.relid and row.attached}
    for name, row in of.subscriptions():
        enabled.add_metric([name], row["subenabled"])
        running.add_metric([name], row["oid"] in applying)
    yield from (enabled, running)


_POSITIONS: Final = (
    ("received_lsn_bytes", "received_lsn", "Highest position received from the publisher."),
    ("latest_end_lsn_bytes", "latest_end_lsn", "Position of the publisher's last keepalive."),
)


def _positions(of: Snapshot) -> Iterator[Metric]:
    rows = [row for row in of.rows["pg_stat_subscription"] if row["worker_type"] == "apply"]
    for name, column, text in _POSITIONS:
        gauge = _gauge(f"subscription_{name}", f"{text} From pg_stat_subscription.", "subname")
        for row in rows:
            if row[column] is not None:
                gauge.add_metric([row["subname"]], int(row[column]))
        yield gauge
    heard = _gauge(
        "subscription_last_msg_receipt_timestamp_seconds",
        "Time of the last message from the publisher, in seconds since 1970.",
        "subname",
    )
    for row in rows:
        if row["last_msg_receipt_time"] is not None:
            heard.add_metric([row["subname"]], row["last_msg_receipt_time"].timestamp())
    yield heard


def _lag(of: Snapshot) -> Iterator[Metric]:
    flushed = _gauge(
        "subscription_flushed_lsn_bytes", "Position last confirmed to the publisher.", "subname"
    )
    behind = _gauge(
        "subscription_lag_bytes", "WAL received and not yet confirmed as durable.", "subname"
    )
    seconds = _gauge(
        "subscription_lag_seconds",
        "Age of the oldest commit that readers of the lake do not see. While no worker runs: the "
        "time since the lake was last known to be complete.",
        "subname",
    )
    found = lags(of.status, of.now)
    for name, row in of.subscriptions():
        lag = found.get(row["oid"])
        if lag is None:
            continue
        if lag.flush_lsn is not None and lag.lag_bytes is not None:
            flushed.add_metric([name], lag.flush_lsn)
            behind.add_metric([name], lag.lag_bytes)
        if lag.since and row["subenabled"]:
            seconds.add_metric([name], max(of.now - lag.since, 0) / 1e6)
    yield from (flushed, behind, seconds)


def _work(of: Snapshot) -> Iterator[Metric]:
    sums = work_sums(of.status)
    by_name = {name: sums.get(row["oid"], {}) for name, row in of.subscriptions()}
    rows = _counter("rows_applied", "Row changes applied, by operation.", "subname", "op")
    transactions = _counter("transactions_applied", "Transactions applied.", "subname")
    received = _counter("received_bytes", "Bytes of changes received.", "subname")
    unsent = _counter(
        "unchanged_toast_values", "Large values that updates left out as unchanged.", "subname"
    )
    for name, work in by_name.items():
        for operation in OPERATIONS:
            rows.add_metric([name, operation], work.get("rows", {}).get(operation, 0))
        transactions.add_metric([name], work.get("transactions", 0))
        received.add_metric([name], work.get("received_bytes", 0))
        unsent.add_metric([name], work.get("unchanged_toast_values", 0))
    yield from (rows, transactions, received, unsent)
    for duration in DURATIONS:
        yield _histogram(duration, {n: w.get("durations", {}) for n, w in by_name.items()})


_DURATION_TEXTS: Final = {
    "batch": "Time to apply a batch of transactions, from the first byte to the stored position.",
    "lake_commit": "Time to commit one table's part of a batch to its branch.",
    "publish": "Time to make a batch visible in all its tables.",
}


def _histogram(name: str, by_subname: Mapping[str, Mapping[str, Any]]) -> Metric:
    found = HistogramMetricFamily(
        f"pgsub_{name}_duration_seconds", _DURATION_TEXTS[name], labels=["subname"]
    )
    bounds = [*(str(bound) for bound in BUCKETS), "+Inf"]
    for subname, durations in by_subname.items():
        each = durations.get(name, {"sum": 0.0, "counts": [0] * len(bounds)})
        below = 0
        buckets = []
        for bound, count in zip(bounds, each["counts"], strict=True):
            below += count
            buckets.append((bound, float(below)))
        found.add_metric([subname], buckets, each["sum"])
    return found


def _spools(of: Snapshot) -> Iterator[Metric]:
    held = _gauge("spool_bytes", "Bytes received and not yet taken into a batch.", "subname")
    limit = _gauge("spool_limit_bytes", "The setting spool_max_size.", "subname")
    paused = _gauge("spool_paused", "1 while reading from the publisher is paused.", "subname")
    for row in of.rows["spools"]:
        if row["relid"] is None:
            held.add_metric([row["subname"]], row["spool_bytes"])
            limit.add_metric([row["subname"]], row["spool_max_size"])
            paused.add_metric([row["subname"]], row["paused_since"] is not None)
    yield from (held, limit, paused)


def _slots(of: Snapshot) -> Iterator[Metric]:
    asked = _gauge("publisher_up", "1 if the publisher answered the last question.", "subname")
    there = _gauge("slot_exists", "1 if the publisher has the subscription's slot.", "subname")
    active = _gauge("slot_active", "1 while a worker reads from the slot.", "subname")
    lag = _gauge("slot_lag_bytes", "WAL on the publisher behind the slot's position.", "subname")
    safe = _gauge(
        "slot_safe_wal_size_bytes", "WAL that may be written before the slot is lost.", "subname"
    )
    status = _gauge("slot_wal_status", "1 for the slot's wal_status.", "subname", "status")
    for name, row in of.subscriptions():
        answer = of.slots.get(row["oid"])
        if answer is None:
            continue
        asked.add_metric([name], answer.answered)
        if answer.answered:
            there.add_metric([name], answer.lag is not None)
        if answer.lag is not None:
            active.add_metric([name], answer.lag.active)
            lag.add_metric([name], answer.lag.lag_bytes)
            if answer.lag.safe_wal_size is not None:
                safe.add_metric([name], answer.lag.safe_wal_size)
            for word in _WAL_STATUS if answer.lag.wal_status else ():
                status.add_metric([name, word], word == answer.lag.wal_status)
    yield from (asked, there, active, lag, safe, status)


def _tables(of: Snapshot) -> Iterator[Metric]:
    names = {row["oid"]: name for name, row in of.subscriptions()}
    tables = _gauge("tables", "Tables by state of synchronisation.", "subname", "state")
    state = _gauge("relation_state", "1 for a table's state.", "subname", "relation", "state")
    suspended = _gauge("tables_suspended", "Tables that on_error = suspend holds.", "subname")
    one = _gauge("relation_suspended", "1 for a suspended table.", "subname", "relation")
    held: Counter[int] = Counter()
    counts: Counter[tuple[int, str]] = Counter()
    relations: dict[tuple[int, int], str] = {}
    for row in of.rows["pg_subscription_rel"]:
        # From the sync worker, as w and c are stored nowhere else.
        found = str(SubRelState(row["relstate"] or row["srsubstate"]))
        counts[row["srsubid"], found] += 1
        relation = qualified_name(row["nspname"], row["relname"])
        relations[row["srsubid"], row["srrelid"]] = relation
        is_suspended = row["suspend_time"] is not None
        held[row["srsubid"]] += is_suspended
        if of.per_table and row["srsubid"] in names:
            state.add_metric([names[row["srsubid"]], relation, found], 1)
            one.add_metric([names[row["srsubid"]], relation], is_suspended)
    for subid, name in names.items():
        for word in SubRelState:
            tables.add_metric([name, word], counts[subid, word])
        suspended.add_metric([name], held[subid])
    yield from (tables, suspended)
    if of.per_table:
        yield from (state, one)
    yield from _copies(of, names, relations)


def _copies(
    of: Snapshot, names: Mapping[int, str], relations: Mapping[tuple[int, int], str]
) -> Iterator[Metric]:
    labels = ("subname", "relation") if of.per_table else ("subname",)
    done = _gauge("copy_processed_bytes", "Bytes copied by running copies.", *labels)
    size = _gauge("copy_size_bytes", "Bytes of the tables that are being copied.", *labels)
    sums: Counter[tuple[str, ...]] = Counter()
    sizes: Counter[tuple[str, ...]] = Counter()
    subids = {row.pid: row.subid for row in of.status.workers if row.relid}
    for row in of.rows["pg_stat_progress_copy"]:
        subid = subids.get(row["pid"], 0)
        if subid in names:
            relation = relations.get((subid, row["relid"]), "")
            key: tuple[str, ...] = (names[subid], relation) if of.per_table else (names[subid],)
            sums[key] += row["bytes_processed"] or 0
            sizes[key] += row["bytes_total"] or 0
    for key in sizes:
        done.add_metric(key, sums[key])
        size.add_metric(key, sizes[key])
    yield from (done, size)


def _errors(of: Snapshot) -> Iterator[Metric]:
    applying = _counter("apply_errors", "Errors while applying changes.", "subname")
    copying = _counter("sync_errors", "Errors while synchronising tables.", "subname")
    suspensions = _counter("table_suspensions", "Errors that suspended a table.", "subname")
    schema = _counter(
        "schema_changes", "Changed columns that the lake followed.", "subname", "kind"
    )
    conflicts = _counter("conflicts", "Conflicts of changes with rows.", "subname", "type")
    for row in of.rows["pg_stat_subscription_stats"]:
        name = row["subname"]
        applying.add_metric([name], row["apply_error_count"])
        copying.add_metric([name], row["sync_error_count"])
        suspensions.add_metric([name], row["suspension_count"])
        for change in ColumnChangeKind:
            schema.add_metric([name, str(change)], row[change.column])
        for conflict in ConflictType:
            conflicts.add_metric([name, str(conflict)], row[conflict.column])
    yield from (applying, copying, suspensions, schema, conflicts)
    restarts = _counter(
        "worker_restarts", "Workers that ended with an error.", "subname", "worker_type"
    )
    failures = {row["subid"]: row["failures"] for row in of.status.totals}
    lasting = _gauge(
        "last_error", "1 for the error that stops a subscription.", "subname", "sqlstate"
    )
    tables = _gauge("tables_failed", "Tables that an error stops.", "subname")
    last = of.rows["last_errors"]
    for name, row in of.subscriptions():
        for kind in ("apply", "tablesync"):
            restarts.add_metric([name, kind], failures.get(row["oid"], {}).get(kind, 0))
        own = [error for error in last if error["subid"] == row["oid"]]
        for error in own:
            if error["relid"] is None:
                lasting.add_metric([name, error["sqlstate"]], 1)
        tables.add_metric([name], sum(error["relid"] is not None for error in own))
    yield from (restarts, lasting, tables)


_LAKE_TEXTS: Final = {
    "data_files": "Data files of the lake tables that the apply worker has written to.",
    "delete_files": "Delete files of these tables.",
    "deleted_rows": "Deleted rows that are still in the data files of these tables.",
    "snapshots": "Snapshots of these tables.",
    "metadata_bytes": "Bytes of these tables' metadata, as JSON without white space.",
    "tables": "Lake tables that the apply worker has written to since its start.",
}


def _lake(of: Snapshot) -> Iterator[Metric]:
    found = lake_files(of.status)
    for figure, text in _LAKE_TEXTS.items():
        gauge = _gauge(f"lake_{figure}", text, "subname")
        for name, row in of.subscriptions():
            if row["oid"] in found:
                gauge.add_metric([name], found[row["oid"]][figure])
        yield gauge


def _upkeep(of: Snapshot) -> Iterator[Metric]:
    done = _counter("lake_upkeep", "Finished maintenance of lake tables.", "subname", "kind")
    failing = _gauge("lake_upkeep_failing", "Lake tables with failed maintenance.", "subname")
    times: Counter[tuple[str, str]] = Counter()
    failed: Counter[str] = Counter()
    for row in of.rows["lake_maintenance"]:
        name = row["subname"]
        for kind in UPKEEP:
            times[name, kind] += row[f"{kind}_count"]
        times[name, "orphan_removal"] += row["orphan_removal_count"]
        failed[name] += row["upkeep_error"] is not None
    for name, _ in of.subscriptions():
        for kind in (*UPKEEP, "orphan_removal"):
            done.add_metric([name, kind], times[name, kind])
        failing.add_metric([name], failed[name])
    yield from (done, failing)


def _processes(of: Snapshot) -> Iterator[Metric]:
    labels = ("process", "subname")
    cpu = _counter("process_cpu_seconds", "Processor time of a process.", *labels)
    memory = _gauge("process_resident_memory_bytes", "Resident memory of a process.", *labels)
    for key, use in of.processes.items():
        cpu.add_metric(key, use.cpu_seconds)
        memory.add_metric(key, use.resident_bytes)
    yield from (cpu, memory)
