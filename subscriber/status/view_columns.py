"""The columns of the status views, in order, each with its PostgreSQL type.

PostgreSQL's columns come first, in PostgreSQL's order; pgsub's columns follow. The types are those
of the tables in ``lake.pg_catalog``. An LSN is text there, and so are the enumerations of one
letter, as JSON and CSV show both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Final

from catalog.lake_maintenance import UPKEEP
from catalog.pg_stat_subscription_stats import SubscriptionStats

Columns = Mapping[str, str]
"""The names of columns, in order, with the types."""

PG_SUBSCRIPTION: Final[Columns] = {
    "oid": "oid",
    "subdbid": "oid",
    "subskiplsn": "text",
    "subname": "text",
    "subowner": "oid",
    "subenabled": "bool",
    "subbinary": "bool",
    "substream": "text",
    "subtwophasestate": "text",
    "subdisableonerr": "bool",
    "subpasswordrequired": "bool",
    "subrunasowner": "bool",
    "subfailover": "bool",
    "subconninfo": "text",
    "subslotname": "text",
    "subsynccommit": "text",
    "subpublications": "text[]",
    "suborigin": "text",
    "subuuid": "text",
    "subcreate": "text",
    "sync_slot": "text",
    "refresh": "text",
    "password_env": "text",
    "sysid": "text",
    "timeline": "int4",
    "datoid": "oid",
    "max_flush_lsn": "text",
    "atomic_publish": "bool",
}

PG_SUBSCRIPTION_REL: Final[Columns] = {
    "srsubid": "oid",
    "srrelid": "oid",
    "srsubstate": "text",
    "srsublsn": "text",
    "nspname": "text",
    "relname": "text",
    "lake_schema": "text",
    "lake_table": "text",
    "relstate": "text",
    "attempt": "int4",
    "floor": "text",
    "lake_lsn": "text",
    "copied": "bool",
    "recopy": "bool",
    "remote_relid": "oid",
    "other_relid": "oid",
    "suspend_time": "timestamptz",
    "suspend_sqlstate": "text",
    "suspend_error": "text",
    "suspend_lsn": "text",
    "resuming": "bool",
}

PG_STAT_SUBSCRIPTION: Final[Columns] = {
    "subid": "oid",
    "subname": "text",
    "worker_type": "text",
    "pid": "int4",
    "leader_pid": "int4",
    "relid": "oid",
    "received_lsn": "text",
    "last_msg_send_time": "timestamptz",
    "last_msg_receipt_time": "timestamptz",
    "latest_end_lsn": "text",
    "latest_end_time": "timestamptz",
}

PG_STAT_SUBSCRIPTION_STATS: Final[Columns] = {
    "subid": "oid",
    "subname": "text",
    **{each.name: "int8" for each in fields(SubscriptionStats)[1:]},
    "stats_reset": "timestamptz",
}
"""``stats_reset`` keeps its place among the counters."""

PG_REPLICATION_ORIGIN: Final[Columns] = {
    "roident": "oid",
    "roname": "text",
}

PG_REPLICATION_ORIGIN_STATUS: Final[Columns] = {
    "local_id": "oid",
    "external_id": "text",
    "remote_lsn": "text",
    "local_lsn": "text",
}

PG_STAT_PROGRESS_COPY: Final[Columns] = {
    "pid": "int4",
    "datid": "oid",
    "datname": "text",
    "relid": "oid",
    "command": "text",
    "type": "text",
    "bytes_processed": "int8",
    "bytes_total": "int8",
    "tuples_processed": "int8",
    "tuples_excluded": "int8",
    "tuples_skipped": "int8",
    "ranges_done": "int8",
    "ranges_total": "int8",
}

PG_PREPARED_XACTS: Final[Columns] = {
    "transaction": "oid",
    "gid": "text",
    "prepared": "timestamptz",
    "owner": "text",
    "database": "text",
    "subid": "oid",
    "subname": "text",
    "remote_gid": "text",
    "prepare_lsn": "text",
    "changes": "int8",
}

LEAKED_SLOTS: Final[Columns] = {
    "slot_name": "text",
    "subname": "text",
    "conninfo": "text",
    "reason": "text",
    "sysid": "text",
    "datoid": "oid",
}

LEAKED_BRANCHES: Final[Columns] = {
    "lake_schema": "text",
    "lake_table": "text",
    "subuuid": "text",
    "subname": "text",
    "since": "timestamptz",
    "reason": "text",
}

LAST_ERRORS: Final[Columns] = {
    "subid": "oid",
    "subname": "text",
    "relid": "oid",
    "relation": "text",
    "since": "timestamptz",
    "sqlstate": "text",
    "message": "text",
    "detail": "text",
    "hint": "text",
    "failures": "int8",
    "next_attempt_time": "timestamptz",
}

LAKE_MAINTENANCE: Final[Columns] = {
    "subid": "oid",
    "subname": "text",
    "relid": "oid",
    "lake_schema": "text",
    "lake_table": "text",
    "last_orphan_removal": "timestamptz",
    "orphan_removal_count": "int8",
    "orphan_files_removed": "int8",
    "reason": "text",
    **{
        name: type_
        for kind in UPKEEP
        for name, type_ in ((f"last_{kind}", "timestamptz"), (f"{kind}_count", "int8"))
    },
    "last_failed_time": "timestamptz",
    "upkeep_error": "text",
}

LAKE_TABLES: Final[Columns] = {
    "subid": "oid",
    "subname": "text",
    "relid": "oid",
    "relation": "text",
    "lake_schema": "text",
    "lake_table": "text",
    "configured": "text",
    "writer": "text",
    "reason": "text",
}

SCHEMA_CHANGES: Final[Columns] = {
    "subid": "oid",
    "subname": "text",
    "relid": "oid",
    "relation": "text",
    "changed_time": "timestamptz",
    "lsn": "text",
    "description": "text",
    "copy_state": "text",
    "copy_seconds": "int8",
}

SPOOLS: Final[Columns] = {
    "subid": "oid",
    "subname": "text",
    "pid": "int4",
    "relid": "oid",
    "relation": "text",
    "spool_bytes": "int8",
    "spool_max_size": "int8",
    "paused_since": "timestamptz",
}
