"""ALTER SUBSCRIPTION … SKIP: what ``subskiplsn`` means for a batch. Pure.

A transaction whose commit record starts at ``subskiplsn`` is not applied: its row changes are
dropped whole, in every table; what it says of relations still counts. The batch is cut around it.
The tables that would have taken it get a stamp beyond it and no rows, so that it can come again (a
publisher that crashed forgets what was confirmed to it) and is one that they have. The origin moves
over it and ``subskiplsn`` is cleared in one transaction of the catalog.

A trace: SKIP 499, the transaction ends at 500 and would change a and b::

    read subskiplsn = 499; the batch is cut: 500 is alone
    a, b are not taken to be whole copies any more: a key it deletes stays in the lake
    stamp 500 on a branch of a and of b, without rows
    in_flight {a, b}; ff a; ff b
    catalog: origin 500, subskiplsn 0/0, in_flight {}

Killed before the last line, a successor fences a and b, finds ``subskiplsn`` and gets 500 again:
it is skipped again, in a table that stands at 500 already by that. Killed after it, 500 is asked
for no more, and if it comes all the same every table stands at 500 or beyond. No other transaction
starts there, so skipping it twice is skipping it once.

When a transaction that changes something finishes beyond ``subskiplsn`` and none did there, it was
not one: it is cleared with a warning. PostgreSQL clears it at the first transaction that finishes
anywhere else, also before it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from workers.stream.batch import Batch


@dataclass(frozen=True, slots=True)
class Skip:
    """What a batch has to do with ``subskiplsn``; never 0/0.

    ``txn`` is the index of the transaction to be skipped. If there is none, ``passed`` is the
    finish LSN of the first one beyond it.
    """

    lsn: LSN
    txn: int | None = None
    passed: LSN | None = None


def look_for_skip(subskiplsn: LSN, batch: Batch) -> Skip | None:
    """What the batch has to do with it; None if nothing."""
    if subskiplsn == InvalidXLogRecPtr:
        return None
    found = np.flatnonzero(batch.final_lsn == int(subskiplsn))
    if len(found):
        return Skip(subskiplsn, txn=int(found[0]))
    beyond = np.flatnonzero((batch.final_lsn > int(subskiplsn)) & (batch.commits[:, 4] > 0))
    if len(beyond):
        return Skip(subskiplsn, passed=LSN(int(batch.final_lsn[beyond[0]])))
    return None
