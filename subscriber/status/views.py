"""``pgsub status``: catalogs and views by their PostgreSQL names, as table, JSON or CSV.

The catalog has the durable facts, the running launcher the facts that only workers know. Without a
launcher the workers' columns are NULL. The columns are in ``view_columns``. LSNs are ``X/X``, times
are UTC with the offset.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from catalog.errcodes import UndefinedTable
from catalog.lake_maintenance import UPKEEP, LakeMaintenance, LakeUpkeep
from catalog.last_error import LastError
from catalog.namespace import qualified_name
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_subscription import LAKE_DATABASE_ID, Subscription
from catalog.pg_subscription_rel import SubscriptionRel
from catalog.store_sqlite import CatalogStore
from config.quantities import stored_spool_max_size
from subscriber.printing import Row, moment
from subscriber.status import view_columns
from subscriber.status.prepared_xacts import pg_prepared_xacts
from subscriber.status.schema_changes import schema_changes
from subscriber.status.view_columns import Columns
from workers.process.worker_slots import LogicalRepWorker, WorkerType

Workers = Sequence[LogicalRepWorker]
"""The worker slots in use, from the running launcher."""

LAKE_DATABASE: Final = "lake"


@dataclass(frozen=True, slots=True)
class View:
    """A catalog or view: the types by column, in order, and a function for the rows."""

    types: Columns
    rows: Callable[[CatalogStore, Workers], list[Row]]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(self.types)


# The views


def _pg_subscription(store: CatalogStore, workers: Workers) -> list[Row]:
    """``atomic_publish`` comes from the apply worker; NULL without one."""
    atomic = {worker.subid: worker.atomic_publish for worker in workers if not worker.relid}
    stored = [name for name in view_columns.PG_SUBSCRIPTION if name != "atomic_publish"]
    return [
        {name: getattr(sub, name) for name in stored} | {"atomic_publish": atomic.get(sub.oid)}
        for sub in store.subscriptions()
    ]


def _pg_subscription_rel(store: CatalogStore, workers: Workers) -> list[Row]:
    """``relstate`` comes from the table's sync worker, and may also be ``w`` or ``c``."""
    live = {(worker.subid, worker.relid): worker.relstate for worker in workers if worker.relid}
    rows = []
    for rel in _all_rels(store):
        row: Row = {name: getattr(rel, name, None) for name in view_columns.PG_SUBSCRIPTION_REL}
        row["suspend_time"] = moment(rel.suspend_time or 0)
        row["relstate"] = live.get((rel.srsubid, rel.srrelid))
        rows.append(row)
    return rows


def _pg_stat_subscription(store: CatalogStore, workers: Workers) -> list[Row]:
    """A row per worker, the apply worker first; without workers, a row of NULLs.

    A parallel apply worker has a row behind the row of its leader.
    """
    rows = []
    for sub in store.subscriptions():
        of_subscription = sorted((w for w in workers if w.subid == sub.oid), key=lambda w: w.relid)
        for worker in of_subscription:
            rows.append(_stat_row(sub, worker))
            rows += [_parallel_row(sub, worker, each["pid"]) for each in worker.parallel]
        if not of_subscription:
            rows.append(_stat_row(sub, None))
    return rows


def _stat_row(sub: Subscription, worker: LogicalRepWorker | None) -> Row:
    row: Row = dict.fromkeys(view_columns.PG_STAT_SUBSCRIPTION)
    row |= {"subid": sub.oid, "subname": sub.subname}
    if worker is not None:
        row |= {
            "worker_type": _WORKER_TYPES[worker.type],
            "pid": worker.pid,
            "relid": worker.relid or None,
            "received_lsn": _known(worker.last_lsn),
            "last_msg_send_time": moment(worker.last_send_time),
            "last_msg_receipt_time": moment(worker.last_recv_time),
            "latest_end_lsn": _known(worker.reply_lsn),
            "latest_end_time": moment(worker.reply_time),
        }
    return row


def _parallel_row(sub: Subscription, leader: LogicalRepWorker, pid: int) -> Row:
    """A thread that writes a transaction in progress.

    The leader alone receives, as in PostgreSQL, so positions and times are NULL.
    """
    shown = {"worker_type": "parallel apply", "pid": pid, "leader_pid": leader.pid}
    return _stat_row(sub, None) | shown


_WORKER_TYPES: Final = {
    WorkerType.APPLY: "apply",
    WorkerType.TABLESYNC: "table synchronization",
}


def _pg_stat_subscription_stats(store: CatalogStore, _workers: Workers) -> list[Row]:
    """A row per subscription; zeros where nothing was counted yet."""
    rows = []
    for sub in store.subscriptions():
        stats = asdict(store.subscription_stats(sub.oid))
        row: Row = {"subid": sub.oid, "subname": sub.subname}
        row |= {
            name: stats[name] for name in view_columns.PG_STAT_SUBSCRIPTION_STATS if name in stats
        }
        rows.append(row | {"stats_reset": moment(stats["stats_reset"] or 0)})
    return rows


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
    """A row per running copy of a table."""
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


def _pg_prepared_xacts(store: CatalogStore, _workers: Workers) -> list[Row]:
    return pg_prepared_xacts(store, LAKE_DATABASE)


def _leaked_slots(store: CatalogStore, _workers: Workers) -> list[Row]:
    """Replication slots left on a publisher by a command."""
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


def _leaked_branches(store: CatalogStore, _workers: Workers) -> list[Row]:
    """Lake tables on which branches of a subscription may stay."""
    return [{**asdict(leak), "since": moment(leak.since)} for leak in store.leaked_branches()]


def _last_errors(store: CatalogStore, workers: Workers) -> list[Row]:
    """Errors that stop a subscription or a table; a row disappears with the next success.

    ``next_attempt_time`` is NULL while a worker tries, and if no worker is going to.
    """
    trying = {(worker.subid, worker.relid) for worker in workers}
    now = time.time_ns() // 1000
    of_subid: dict[int, list[LastError]] = {}
    for error in store.last_errors():
        of_subid.setdefault(error.subid, []).append(error)
    rows = []
    for sub in store.subscriptions() if of_subid else ():
        errors = of_subid.get(sub.oid, [])
        names = _relations(store, sub) if any(error.relid for error in errors) else {}
        for error in errors:
            waits = sub.subenabled and (sub.oid, error.relid) not in trying
            due = error.next_attempt or 0
            rows.append(
                {
                    "subid": sub.oid,
                    "subname": sub.subname,
                    "relid": error.relid or None,
                    "relation": names.get(error.relid),
                    "since": moment(error.since),
                    "sqlstate": error.sqlstate,
                    "message": error.message,
                    "detail": error.detail,
                    "hint": error.hint,
                    "failures": error.failures,
                    "next_attempt_time": moment(due if waits and due > now else 0),
                }
            )
    return rows


def _lake_maintenance(store: CatalogStore, _workers: Workers) -> list[Row]:
    """Maintenance of lake tables; a table without any so far has no row."""
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
            for rel in (store.rels(sub.oid) if orphans or upkeep else ())
            if rel.srrelid in orphans or rel.srrelid in upkeep
        ]
    return rows


def _orphans(done: LakeMaintenance | None) -> Row:
    return {
        "last_orphan_removal": moment(done.since) if done and done.tried else None,
        "orphan_removal_count": done.orphan_removals if done else 0,
        "orphan_files_removed": done.orphan_files if done else 0,
        "reason": done.reason if done else None,
    }


def _upkeep(known: Sequence[LakeUpkeep]) -> Row:
    row: Row = {}
    by_kind = {each.kind: each for each in known}
    for kind in UPKEEP:
        done = by_kind.get(kind)
        row |= {f"last_{kind}": moment((done and done.done) or 0)}
        row |= {f"{kind}_count": done.times if done else 0}
    failed = [each for each in known if each.error is not None]
    row["last_failed_time"] = moment(max((each.failed or 0 for each in failed), default=0))
    row["upkeep_error"] = "; ".join(f"{each.kind}: {each.error}" for each in failed) or None
    return row


def _lake_tables(store: CatalogStore, _workers: Workers) -> list[Row]:
    """A row per lake table: who writes its rows, and why.

    NULL until a worker opens the table under the present configuration.
    """
    default = store.settings().get("lake", {}).get("writer", "auto")
    rows = []
    for sub in store.subscriptions():
        chosen = {each.relid: each for each in store.lake_writers(sub.oid)}
        for rel in store.rels(sub.oid):
            asked = sub.table_options(rel.nspname, rel.relname).writer or default
            known = chosen.get(rel.srrelid)
            current = known if known is not None and known.asked == asked else None
            rows.append(
                {
                    "subid": sub.oid,
                    "subname": sub.subname,
                    "relid": rel.srrelid,
                    "relation": qualified_name(rel.nspname, rel.relname),
                    "lake_schema": rel.lake_schema,
                    "lake_table": rel.lake_table,
                    "configured": asked,
                    "writer": current and current.writer,
                    "reason": current and current.reason,
                }
            )
    return rows


def _spools(store: CatalogStore, workers: Workers) -> list[Row]:
    """A row per streaming worker: the changes received and not yet applied."""
    streaming = [worker for worker in workers if worker.spool_bytes is not None]
    limit = stored_spool_max_size(store.settings())
    rows = []
    for sub in store.subscriptions() if streaming else ():
        own = sorted((w for w in streaming if w.subid == sub.oid), key=lambda w: w.relid)
        names = _relations(store, sub) if any(worker.relid for worker in own) else {}
        rows += [
            {
                "subid": sub.oid,
                "subname": sub.subname,
                "pid": worker.pid,
                "relid": worker.relid or None,
                "relation": names.get(worker.relid),
                "spool_bytes": worker.spool_bytes,
                "spool_max_size": limit,
                "paused_since": moment(worker.paused_since),
            }
            for worker in own
        ]
    return rows


def _relations(store: CatalogStore, sub: Subscription) -> dict[int, str]:
    return {rel.srrelid: qualified_name(rel.nspname, rel.relname) for rel in store.rels(sub.oid)}


VIEWS: Final[dict[str, View]] = {
    "pg_subscription": View(view_columns.PG_SUBSCRIPTION, _pg_subscription),
    "pg_subscription_rel": View(view_columns.PG_SUBSCRIPTION_REL, _pg_subscription_rel),
    "pg_stat_subscription": View(view_columns.PG_STAT_SUBSCRIPTION, _pg_stat_subscription),
    "pg_stat_subscription_stats": View(
        view_columns.PG_STAT_SUBSCRIPTION_STATS, _pg_stat_subscription_stats
    ),
    "pg_replication_origin": View(view_columns.PG_REPLICATION_ORIGIN, _pg_replication_origin),
    "pg_replication_origin_status": View(
        view_columns.PG_REPLICATION_ORIGIN_STATUS, _pg_replication_origin_status
    ),
    "pg_stat_progress_copy": View(view_columns.PG_STAT_PROGRESS_COPY, _pg_stat_progress_copy),
    "pg_prepared_xacts": View(view_columns.PG_PREPARED_XACTS, _pg_prepared_xacts),
    "leaked_slots": View(view_columns.LEAKED_SLOTS, _leaked_slots),
    "leaked_branches": View(view_columns.LEAKED_BRANCHES, _leaked_branches),
    "last_errors": View(view_columns.LAST_ERRORS, _last_errors),
    "lake_maintenance": View(view_columns.LAKE_MAINTENANCE, _lake_maintenance),
    "lake_tables": View(view_columns.LAKE_TABLES, _lake_tables),
    "schema_changes": View(view_columns.SCHEMA_CHANGES, schema_changes),
    "spools": View(view_columns.SPOOLS, _spools),
}

OVERVIEW: Final = ("pg_stat_subscription", "pg_subscription_rel")
"""The views of ``pgsub status`` without a view's name."""


def view(name: str) -> View:
    """A view by name; 42P01 for an unknown name."""
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
