"""The transaction that ended the apply worker before: the next worker tries it alone at once.

A lake that refuses a row often does not say of which transaction. The worker then cuts the batch
into halves until the transaction stands alone (``workers.apply.apply_batch``), and every half is
written to the lake. The slot sends all of it to the next worker again, and the next worker would
cut again: 14 writes for a batch of 10,000 transactions, in every life of an error that lasts. So
the worker stores the transaction before the error ends the worker. A trace::

    worker 1    1-8 fails, 1-4 fails, 1-2 fails, 1 fails: stored, the error ends the worker
    worker 2    1 alone fails: the error ends the worker
    worker 3    1 alone is published: forgotten; 2-8 is one part

The stored transaction decides only where a batch is cut. Every transaction is applied in commit
order, whole, and by the same code, whether a transaction is stored, is not, or is a wrong one.
"""

from __future__ import annotations

import logging

import numpy as np

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from catalog.store_sqlite import CatalogStore
from catalog.transaction_at_fault import TransactionAtFault
from workers.changes.failed_transaction import FailedChange
from workers.stream.batch import Batch

log = logging.getLogger(__name__)


class KnownFault:
    """The stored transaction of a subscription, read once by each apply worker."""

    def __init__(self, store: CatalogStore, subid: int) -> None:
        self._store = store
        self._subid = subid
        self._fault = store.transaction_at_fault(subid)

    def find(self, part: Batch) -> int | None:
        """The index of the transaction in ``part``; None without it, or if it stands alone."""
        if self._fault is None or part.ntxns == 1:
            return None
        found = np.flatnonzero(part.final_lsn == int(self._fault.finish_lsn))
        return int(found[0]) if len(found) else None

    def remember(self, alone: Batch, error: ReplicationError, change: FailedChange | None) -> None:
        """Store the transaction of a part, which the error is about to end the worker for."""
        fault = TransactionAtFault(
            self._subid,
            LSN(int(alone.final_lsn[0])),
            error.code,
            None if change is None else change.nspname,
            None if change is None else change.relname,
        )
        if fault == self._fault:
            return
        try:
            self._store.put_transaction_at_fault(fault)
        except ReplicationError:  # a full disk, say; the next worker cuts again
            log.debug("action=known_fault could not be stored")
            return
        self._fault = fault

    def passed(self, end_lsn: LSN) -> None:
        """Forget the transaction if it ended before ``end_lsn``, applied or skipped."""
        if self._fault is not None and end_lsn > self._fault.finish_lsn:
            self._store.forget_transaction_at_fault(self._subid)
            self._fault = None
