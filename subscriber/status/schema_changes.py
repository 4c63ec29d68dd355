"""The view ``schema_changes``: changes of the publisher's columns that the lake has followed."""

from __future__ import annotations

from collections.abc import Sequence

from catalog.namespace import qualified_name
from catalog.schema_changes import SchemaChange
from catalog.store_sqlite import CatalogStore
from subscriber.printing import Row, moment
from workers.process.worker_slots import LogicalRepWorker


def schema_changes(store: CatalogStore, _workers: Sequence[LogicalRepWorker]) -> list[Row]:
    """One row for each change, the newest of a table last."""
    changes = store.schema_changes()
    concerned = {change.subid for change in changes}
    subs = {sub.oid: sub for sub in store.subscriptions() if sub.oid in concerned}
    names = {
        (subid, rel.srrelid): qualified_name(rel.nspname, rel.relname)
        for subid in subs
        for rel in store.rels(subid)
    }
    return [
        {
            "subid": change.subid,
            "subname": subs[change.subid].subname,
            "relid": change.relid,
            "relation": names.get((change.subid, change.relid)),
            "changed_time": moment(change.changed),
            "lsn": change.lsn,
            "description": "; ".join(change.changes),
            **_copy_of(change),
        }
        for change in changes
        if change.subid in subs
    ]


def _copy_of(change: SchemaChange) -> Row:
    """How far the copy for a change is, and how long the copy took; NULL without a copy."""
    if not change.copies:
        return {"copy_state": None, "copy_seconds": None}
    if change.copied is None:
        return {"copy_state": "running", "copy_seconds": None}
    return {"copy_state": "done", "copy_seconds": (change.copied - change.changed) // 1_000_000}
