"""The gate: does this worker apply this transaction to this table?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from catalog.pg_subscription_rel import SubRelState, SubscriptionRel

Bools = NDArray[np.bool_]
LSNs = NDArray[np.int64]


def should_apply_changes_for_rel(
    rel: SubscriptionRel | None, remote_final_lsn: LSNs, *, own_relid: int = 0
) -> Bools:
    """The gate: for each transaction (its commit record's *start*), does this worker apply it?

    A sync worker (``own_relid``) applies its own table and nothing else. The apply worker
    applies a table that is ready, and one that is synced if the transaction commits at or after
    the position the sync worker reached. ``<=`` and not ``<``: ``srsublsn`` is the end of what
    the sync worker applied, "last byte + 1", and so may be the very byte at which the next
    commit record starts; with ``<`` that transaction would be nobody's.
    """
    if rel is None:
        return np.zeros(len(remote_final_lsn), dtype=np.bool_)
    if own_relid:
        return np.full(len(remote_final_lsn), rel.srrelid == own_relid)
    if rel.srsubstate == SubRelState.READY:
        return np.ones(len(remote_final_lsn), dtype=np.bool_)
    if rel.srsubstate == SubRelState.SYNCDONE and rel.srsublsn is not None:
        return np.asarray(rel.srsublsn <= remote_final_lsn, dtype=np.bool_)
    return np.zeros(len(remote_final_lsn), dtype=np.bool_)
