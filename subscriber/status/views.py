"""``pgsub status``: catalogs and views by their PostgreSQL names, as table, JSON or CSV.

What is durable comes from the catalog, what only workers know from the running launcher; without
one the stored catalog is shown and the workers' columns are NULL. PostgreSQL's columns come first,
in its order; columns after them are ours. LSNs are ``X/X``, times are UTC with their offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Final

from catalog.errcodes import UndefinedTable
from catalog.lake_maintenance import UPKEEP, LakeMaintenance, LakeUpkeep
from catalog.namespace import printable, qualified_name
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_stat_subscription_stats import SubscriptionStats
from catalog.pg_subscription import LAKE_DATABASE_ID, PG_SUBSCRIPTION_COLUMNS, Subscription
from catalog.pg_subscription_rel import PG_SUBSCRIPTION_REL_COLUMNS, SubscriptionRel
from catalog.remedies import SPOOL_FULL, UPKEEP_FAILED
from catalog.store_sqlite import CatalogStore
from config.quantities import format_memory, pretty_size, stored_spool_max_size
from subscriber.printing import Row, timestamptz
from workers.process.worker_slots import LogicalRepWorker, WorkerType

Workers = Sequence[LogicalRepWorker]
"""Seconds between two looks of ``--watch``."""

LAKE_DATABASE: Final = "lake"


@dataclass(frozen=True, slots=True)
class View:
    """A catalog or view: its columns in order, and its rows from catalog and workers."""

    columns: tuple[str, ...]
    rows: Callable[[CatalogStore, Workers], list[Row]]


# The views


_SUBSCRIPTION_OURS: Final = (
    "subuuid",
    "subcreate",
    "sync_slot",
    "password_env",
    "sysid",
    "timeline",
    "datoid",
    "max_flush_lsn",
)
_REL_OURS: Final = (
    "nspname",
    "relname",
    "lake_schema",
    "lake_table",
    "relstate",
    "attempt",
    "floor",
    "lake_lsn",
    "copied",
    "recopy",
)


def _pg_subscription(store: CatalogStore, _workers: Workers) -> list[Row]:
    columns = PG_SUBSCRIPTION_COLUMNS + _SUBSCRIPTION_OURS
    return [{name: getattr(sub, name) for name in columns} for sub in store.subscriptions()]


def _pg_subscription_rel(store: CatalogStore, workers: Workers) -> list[Row]:
    """``relstate`` is what the table's sync worker says, so also ``w`` and ``c``."""
    live = {(worker.subid, worker.relid): worker.relstate for worker in workers if worker.relid}
    rows = []
    for rel in _all_rels(store):
        columns = PG_SUBSCRIPTION_REL_COLUMNS + _REL_OURS
        row = {name: getattr(rel, name, None) for name in columns}
        row["relstate"] = live.get((rel.srsubid, rel.srrelid))
        rows.append(row)
    return rows


def _pg_stat_subscription(store: CatalogStore, workers: Workers) -> list[Row]:
    """One row per worker, the apply worker first; one of NULLs for a subscription without."""
    rows = []
    for sub in store.subscriptions():
        own = sorted((w for w in workers if w.subid == sub.oid), key=lambda w: w.relid)
        rows += [_stat_row(sub, worker) for worker in own] or [_stat_row(sub, None)]
    return rows


def _stat_row(sub: Subscription, worker: LogicalRepWorker | None) -> Row:
    row: Row = dict.fromkeys(_STAT_COLUMNS)
    row |= {"subid": sub.oid, "subname": sub.subname}
    if worker is not None:
        row |= {
            "worker_type": _WORKER_TYPES[worker.type],
            "pid": worker.pid,
            "relid": worker.relid or None,
            "received_lsn": _known(worker.last_lsn),
            "last_msg_send_time": _time(worker.last_send_time),
            "last_msg_receipt_time": _time(worker.last_recv_time),
            "latest_end_lsn": _known(worker.reply_lsn),
            "latest_end_time": _time(worker.reply_time),
        }
    return row


_STAT_COLUMNS: Final = (
    "subid",
    "subname",
    "worker_type",
    "pid",
    "leader_pid",
    "relid",
    "received_lsn",
    "last_msg_send_time",
    "last_msg_receipt_time",
    "latest_end_lsn",
    "latest_end_time",
)
_WORKER_TYPES: Final = {
    WorkerType.APPLY: "apply",
    WorkerType.TABLESYNC: "table synchronization",
}


def _pg_stat_subscription_stats(store: CatalogStore, _workers: Workers) -> list[Row]:
    """One row per subscription, zeros for one that has counted nothing."""
    rows = []
    for sub in store.subscriptions():
        stats = store.subscription_stats(sub.oid)
        row: Row = {"subid": sub.oid, "subname": sub.subname}
        row |= {name: getattr(stats, name) for name in _STATS_COLUMNS[2:]}
        rows.append(row | {"stats_reset": _time(stats.stats_reset or 0)})
    return rows


_STATS_COLUMNS: Final = ("subid", "subname", *(each.name for each in fields(SubscriptionStats)[1:]))


def _pg_replication_origin(store: CatalogStore, _workers: Workers) -> list[Row]:
    return [{"roident": origin.roident, "roname": origin.roname} for origin in store.origins()]


def _pg_replication_origin_status(store: CatalogStore, _workers: Workers) -> list[Row]:
    """Origins that have advanced; ``local_lsn`` names the lake commit."""
    return [
        {
            "local_id": origin.roident,
            "external_id": origin.roname,
            "remote_lsn": origin.remote_lsn,
            "local_lsn": origin.local_lsn,
        }
        for origin in store.origins()
        if origin.local_lsn is not None
    ]


def _pg_stat_progress_copy(_store: CatalogStore, workers: Workers) -> list[Row]:
    """One row per table that is being copied."""
    return [
        {
            "pid": worker.pid,
            "datid": LAKE_DATABASE_ID,
            "datname": LAKE_DATABASE,
            "relid": worker.relid,
            "command": "COPY FROM",
            "type": "CALLBACK",
            "bytes_processed": worker.progress.get("bytes_processed"),
            "bytes_total": worker.progress.get("bytes_total"),
            "tuples_processed": worker.progress.get("tuples_processed"),
            "tuples_excluded": 0,
            "tuples_skipped": 0,
            "ranges_done": worker.progress.get("done"),
            "ranges_total": worker.progress.get("ranges"),
        }
        for worker in workers
        if worker.relid and worker.progress is not None and worker.relstate in (None, "d")
    ]


def _leaked_slots(store: CatalogStore, _workers: Workers) -> list[Row]:
    """Replication slots that DROP left on a publisher."""
    return [
        {
            "slot_name": slot.slot_name,
            "subname": slot.subname,
            "conninfo": slot.conninfo or None,
            "reason": slot.reason,
            "sysid": slot.sysid or None,
            "datoid": slot.datoid,
        }
        for slot in store.leaked_slots()
    ]


def _last_errors(store: CatalogStore, _workers: Workers) -> list[Row]:
    """What stops a subscription or a table; a row goes when it gets on again."""
    rows = []
    for sub in store.subscriptions():
        names = _relations(store, sub)
        rows += [
            {
                "subid": sub.oid,
                "subname": sub.subname,
                "relid": error.relid or None,
                "relation": names.get(error.relid),
                "since": _time(error.since),
                "sqlstate": error.sqlstate,
                "message": error.message,
                "detail": error.detail,
                "hint": error.hint,
            }
            for error in store.last_errors()
            if error.subid == sub.oid
        ]
    return rows


def _lake_maintenance(store: CatalogStore, _workers: Workers) -> list[Row]:
    """What was done beside and between the batches; nothing yet makes no row."""
    rows = []
    for sub in store.subscriptions():
        orphans = {done.relid: done for done in store.lake_maintenance(sub.oid)}
        upkeep: dict[int, list[LakeUpkeep]] = {}
        for each in store.lake_upkeep(sub.oid):
            upkeep.setdefault(each.relid, []).append(each)
        rows += [
            {
                "subid": sub.oid,
                "subname": sub.subname,
                "relid": rel.srrelid,
                "lake_schema": rel.lake_schema,
                "lake_table": rel.lake_table,
                **_orphans(orphans.get(rel.srrelid)),
                **_upkeep(upkeep.get(rel.srrelid, [])),
            }
            for rel in store.rels(sub.oid)
            if rel.srrelid in orphans or rel.srrelid in upkeep
        ]
    return rows


def _orphans(done: LakeMaintenance | None) -> Row:
    return {
        "last_orphan_removal": _time(done.since) if done and done.tried else None,
        "orphan_removal_count": done.orphan_removals if done else 0,
        "orphan_files_removed": done.orphan_files if done else 0,
        "reason": done.reason if done else None,
    }


def _upkeep(known: Sequence[LakeUpkeep]) -> Row:
    row: Row = {}
    by_kind = {each.kind: each for each in known}
    for kind in UPKEEP:
        done = by_kind.get(kind)
        row |= {f"last_{kind}": _time((done and done.done) or 0)}
        row |= {f"{kind}_count": done.times if done else 0}
    failed = [each for each in known if each.error is not None]
    row["last_failed_time"] = _time(max((each.failed or 0 for each in failed), default=0))
    row["upkeep_error"] = "; ".join(f"{each.kind}: {each.error}" for each in failed) or None
    return row


def _spools(store: CatalogStore, workers: Workers) -> list[Row]:
    """One row per worker that streams: what it has received and not yet taken to apply."""
    limit = stored_spool_max_size(store.settings())
    rows = []
    for sub in store.subscriptions():
        names = _relations(store, sub)
        rows += [
            {
                "subid": sub.oid,
                "subname": sub.subname,
                "pid": worker.pid,
                "relid": worker.relid or None,
                "relation": names.get(worker.relid),
                "spool_bytes": worker.spool_bytes,
                "spool_max_size": limit,
                "paused_since": _time(worker.paused_since),
            }
            for worker in sorted(workers, key=lambda worker: worker.relid)
            if worker.subid == sub.oid and worker.spool_bytes is not None
        ]
    return rows


def _relations(store: CatalogStore, sub: Subscription) -> dict[int, str]:
    return {rel.srrelid: qualified_name(rel.nspname, rel.relname) for rel in store.rels(sub.oid)}


def _told(row: Row) -> str:
    """An error as psql prints one, and whose it is."""
    lines = [f"ERROR:  {row['sqlstate']}: {row['message']}"]
    lines += [f"{key.upper()}:  {row[key]}" for key in ("detail", "hint") if row[key]]
    return _of(row, row["since"], lines)


def _told_of_pause(row: Row) -> str:
    """A full spool, in the same form."""
    said = (
        f"WARNING:  reading from the publisher is paused: {pretty_size(row['spool_bytes'])} "
        f"received and not applied, spool_max_size is {format_memory(row['spool_max_size'])}"
    )
    return _of(row, row["paused_since"], [said, f"HINT:  {SPOOL_FULL}"])


def _told_of_upkeep(row: Row) -> str:
    """Upkeep that failed when it was last tried, in the same form."""
    lake = f"{row['lake_schema']}.{row['lake_table']}"
    said = f'WARNING:  upkeep of lake table "{lake}" failed: {row["upkeep_error"]}'
    lines = [said, f"HINT:  {UPKEEP_FAILED}"]
    return _of({**row, "relation": None}, row["last_failed_time"], lines, "at")


def _of(row: Row, since: datetime, lines: Sequence[str], when: str = "since") -> str:
    """What is so of a subscription or a table, and since when."""
    whose = f'subscription "{row["subname"]}"'
    if row["relation"]:
        whose = f'table "{row["relation"]}" of {whose}'
    head = f"{whose}, {when} {timestamptz(since.replace(microsecond=0))}:"
    return printable("\n".join([head, *lines])) + "\n"


VIEWS: Final[dict[str, View]] = {
    "pg_subscription": View(PG_SUBSCRIPTION_COLUMNS + _SUBSCRIPTION_OURS, _pg_subscription),
    "pg_subscription_rel": View(PG_SUBSCRIPTION_REL_COLUMNS + _REL_OURS, _pg_subscription_rel),
    "pg_stat_subscription": View(_STAT_COLUMNS, _pg_stat_subscription),
    "pg_stat_subscription_stats": View(_STATS_COLUMNS, _pg_stat_subscription_stats),
    "pg_replication_origin": View(("roident", "roname"), _pg_replication_origin),
    "pg_replication_origin_status": View(
        ("local_id", "external_id", "remote_lsn", "local_lsn"), _pg_replication_origin_status
    ),
    "pg_stat_progress_copy": View(
        (
            "pid",
            "datid",
            "datname",
            "relid",
            "command",
            "type",
            "bytes_processed",
            "bytes_total",
            "tuples_processed",
            "tuples_excluded",
            "tuples_skipped",
            "ranges_done",
            "ranges_total",
        ),
        _pg_stat_progress_copy,
    ),
    "leaked_slots": View(
        ("slot_name", "subname", "conninfo", "reason", "sysid", "datoid"), _leaked_slots
    ),
    "last_errors": View(
        (
            "subid",
            "subname",
            "relid",
            "relation",
            "since",
            "sqlstate",
            "message",
            "detail",
            "hint",
        ),
        _last_errors,
    ),
    "lake_maintenance": View(
        (
            "subid",
            "subname",
            "relid",
            "lake_schema",
            "lake_table",
            "last_orphan_removal",
            "orphan_removal_count",
            "orphan_files_removed",
            "reason",
            *(name for kind in UPKEEP for name in (f"last_{kind}", f"{kind}_count")),
            "last_failed_time",
            "upkeep_error",
        ),
        _lake_maintenance,
    ),
    "spools": View(
        (
            "subid",
            "subname",
            "pid",
            "relid",
            "relation",
            "spool_bytes",
            "spool_max_size",
            "paused_since",
        ),
        _spools,
    ),
}

OVERVIEW: Final = ("pg_stat_subscription", "pg_subscription_rel")
"""What ``pgsub status`` shows when no view is named; and what else is worth a look, if there is."""


def view(name: str) -> View:
    """A view by name; 42P01 if there is none."""
    found = VIEWS.get(name)
    if found is None:
        raise UndefinedTable(
            f'relation "{name}" does not exist', hint=f"There are: {', '.join(VIEWS)}."
        )
    return found


def _all_rels(store: CatalogStore) -> Iterator[SubscriptionRel]:
    for sub in store.subscriptions():
        yield from store.rels(sub.oid)


def _known(lsn: LSN) -> LSN | None:
    return None if lsn == InvalidXLogRecPtr else lsn


def _time(microseconds: int) -> datetime | None:
    """Microseconds since 1970 as a time; 0 stands for never."""
    if not microseconds:
        return None
    seconds, rest = divmod(microseconds, 10**6)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest)
