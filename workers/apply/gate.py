"""The gate: does a worker apply a transaction to a table?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from catalog.pg_subscription_rel import SubRelState, SubscriptionRel

Bools = NDArray[np.bool_]
LSNs = NDArray[np.int64]


def should_apply_changes_for_rel(
    rel: SubscriptionRel | None, remote_final_lsn: LSNs, *, own_relid: int = 0
) -> Bools:
    """Return True for each transaction that the worker applies to a table.

    ``remote_final_lsn`` has the *start* of each transaction's commit record. A sync worker applies
    the table ``own_relid`` alone, suspended or not: the copy ends the suspension. The apply worker
    applies no transaction to a suspended table, and all transactions to a table that is ready. To a
    table that is synced the apply worker applies the transactions that commit at or after
    ``srsublsn``, the position that the sync worker reached.

    The comparison is ``<=`` and not ``<``. ``srsublsn`` is the last applied byte + 1, and the next
    commit record may start exactly at ``srsublsn``. With ``<`` no worker would apply the
    transaction.
    """
    if rel is None:
        return np.zeros(len(remote_final_lsn), dtype=np.bool_)
    if own_relid:
        return np.full(len(remote_final_lsn), rel.srrelid == own_relid)
    if rel.suspended:
        return np.zeros(len(remote_final_lsn), dtype=np.bool_)
    if rel.srsubstate == SubRelState.READY:
        return np.ones(len(remote_final_lsn), dtype=np.bool_)
    if rel.srsubstate == SubRelState.SYNCDONE and rel.srsublsn is not None:
        return np.asarray(rel.srsublsn <= remote_final_lsn, dtype=np.bool_)
    return np.zeros(len(remote_final_lsn), dtype=np.bool_)
