"""ALTER SUBSCRIPTION … SKIP: what ``subskiplsn`` means for a batch. Pure.

A transaction whose commit record starts at ``subskiplsn`` is not applied. All row changes of the
transaction are dropped, in every table; Relation messages in the transaction still count. The batch
is cut around the transaction. Every table that would have taken the transaction gets a position
beyond the transaction, and no rows. The transaction may come again, because a publisher that
crashed forgets confirmed positions; the tables then skip it by their position. One transaction of
the catalog moves the origin over the skipped transaction and clears ``subskiplsn``.

A trace: SKIP 499, the transaction ends at 500 and would change a and b::

    read subskiplsn = 499; the batch is cut: 500 is alone
    inserted keys of a and b are looked up from now on: a key that 500 deletes stays in the lake
    position 500 on a branch of a and of b, without rows
    in_flight {a, b}; ff a; ff b
    catalog: origin 500, subskiplsn 0/0, in_flight {}

If the worker is killed before the last line, the successor fences a and b, finds ``subskiplsn``,
gets 500 again and skips 500 again. A table with position 500 already skips 500 by the position. If
the worker is killed after the last line, nobody asks for 500 any more. Should 500 come all the
same, every table has position 500 or more. No other transaction commits at 499, so to skip 500
twice is to skip 500 once.

``subskiplsn`` may name no transaction. That is known when a transaction with changes finishes
beyond ``subskiplsn`` and none finished there. Then ``subskiplsn`` is cleared with a warning.
PostgreSQL clears ``subskiplsn`` at the first transaction that finishes anywhere else, also before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from workers.stream.batch import Batch


@dataclass(frozen=True, slots=True)
class Skip:
    """The meaning of ``subskiplsn`` for a batch. ``lsn`` is ``subskiplsn``, never 0/0.

    ``txn`` is the index of the transaction to be skipped. Without such a transaction, ``passed`` is
    the finish LSN of the first transaction beyond ``lsn``.
    """

    lsn: LSN
    txn: int | None = None
    passed: LSN | None = None


def look_for_skip(subskiplsn: LSN, batch: Batch) -> Skip | None:
    """Find the transaction to be skipped; None if ``subskiplsn`` has no meaning for the batch."""
    if subskiplsn == InvalidXLogRecPtr:
        return None
    found = np.flatnonzero(batch.final_lsn == int(subskiplsn))
    if len(found):
        return Skip(subskiplsn, txn=int(found[0]))
    beyond = np.flatnonzero((batch.final_lsn > int(subskiplsn)) & (batch.commits[:, 4] > 0))
    if len(beyond):
        return Skip(subskiplsn, passed=LSN(int(batch.final_lsn[beyond[0]])))
    return None
