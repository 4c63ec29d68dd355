"""The view ``pg_prepared_xacts``: transactions prepared on a publisher and not ended yet."""

from __future__ import annotations

from catalog.pg_subscription import OWNER
from catalog.store_sqlite import CatalogStore
from subscriber.printing import Row, moment
from workers.stream.prepared_xacts import PreparedXacts


def pg_prepared_xacts(store: CatalogStore, database: str) -> list[Row]:
    """A row per prepared transaction.

    ``transaction`` and ``remote_gid`` are the publisher's number and name.
    """
    data_dir = store.data_dir
    if data_dir is None:
        return []
    return [
        {
            "transaction": xact.xid,
            "gid": gid,
            "prepared": moment(xact.prepared_at),
            "owner": OWNER,
            "database": database,
            "subid": sub.oid,
            "subname": sub.subname,
            "remote_gid": xact.gid,
            "prepare_lsn": xact.prepare_lsn,
            "changes": xact.changes,
        }
        for sub in store.subscriptions()
        for gid, xact in PreparedXacts(data_dir, sub.subuuid, sub.oid).all()
    ]
