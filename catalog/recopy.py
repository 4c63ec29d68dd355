"""Mark tables in the catalog to be copied again, or a failed copy to be tried again.

A command does so for a user, and an apply worker for a table whose change cannot be followed. The
move to ``i`` is the same one, and so is what the workers do about the row afterwards.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence

from catalog.pg_lsn import InvalidXLogRecPtr
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SYNCED, Setter, SubRelState, SubscriptionRel
from catalog.store_sqlite import CatalogStore


def mark_for_recopy(
    sub: Subscription,
    chosen: Sequence[SubscriptionRel],
    store: CatalogStore,
    *,
    anew: bool = False,
) -> list[int]:
    """Mark the tables to be copied again; the oids of tables with a running copy.

    A table in ``d`` stays in ``d``: the next sync worker takes back the published part of the copy.
    A table in ``f`` begins again at ``i``; the origin stays, as a record of the slot to be dropped.
    A suspended table stays suspended until the copy is complete.

    In ``d`` the column ``lake_lsn`` tells the next attempt that a publication may be in flight
    (``workers.sync.attempt``). With ``anew`` no position has a meaning any more.
    """
    copying = []
    with store.transaction():
        for rel in _present_rows(sub, chosen, store):
            in_flight = rel.srsubstate is SubRelState.DATASYNC
            if rel.srsubstate in (*SYNCED, SubRelState.FINISHEDCOPY):
                store.set_rel_state(
                    sub.oid, rel.srrelid, SubRelState.INIT, None, Setter.SUBSCRIPTIONCMDS
                )
            if rel.srsubstate in (SubRelState.DATASYNC, SubRelState.FINISHEDCOPY):
                copying.append(rel.srrelid)
            store.update_rel(
                sub.oid,
                rel.srrelid,
                recopy=True,
                epoch=str(uuid.uuid4()),
                lake_lsn=rel.lake_lsn if in_flight and not anew else InvalidXLogRecPtr,
                copied=False,
                other_relid=None,
                resuming=rel.suspended,
            )
            store.forget_last_error(sub.oid, rel.srrelid)
            store.forget_maintenance_errors(sub.oid, rel.srrelid)
    return copying


def mark_to_try_again(
    sub: Subscription, chosen: Sequence[SubscriptionRel], store: CatalogStore
) -> None:
    """Let the first copy of suspended tables be tried again; the copy keeps its kind.

    State and copy id stay, so the next attempt takes back what the failed attempt published. A
    first copy adds to the rows of an adopted lake table: replacing the rows would destroy rows
    that only the lake has.
    """
    with store.transaction():
        for rel in _present_rows(sub, chosen, store):
            store.update_rel(sub.oid, rel.srrelid, resuming=True)
            store.forget_last_error(sub.oid, rel.srrelid)


def _present_rows(
    sub: Subscription, chosen: Sequence[SubscriptionRel], store: CatalogStore
) -> Iterator[SubscriptionRel]:
    """The rows as of the present transaction; a refresh may have removed some."""
    for rel in chosen:
        now = store.rel(sub.oid, rel.srrelid)
        if now is not None:
            yield now
