"""A pause after a batch of many small transactions, so that the next batch holds more.

The cost of a batch is the cost of the commits, however small the batch is. Batch after batch takes
processor time from a busy publisher and the publisher's clients. So after a batch of many small
transactions the worker waits for ``batch_delay``, but only as long as more transactions come.
PostgreSQL's ``commit_delay`` does the same for flushes of the WAL. A wait as long as the batch took
would be short exactly where batches are fast, and would make twice the commits.

Trace: 900 transactions a second. A batch of 600 takes 0.4 s; in these, and in 1 s of waiting,
1,260 come; their batch takes 0.5 s. The clients cease: 0.1 s later the wait ends.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from config.limits import (
    BATCH_DELAY_QUIET_SECONDS,
    BATCH_DELAY_TRANSACTIONS,
    SMALL_TRANSACTION_CHANGES,
)
from workers.process.latch import Latch
from workers.stream.batch import Batch


def delay_after(
    batch: Batch, batch_delay: float, batch_max_rows: int, prepared_changes: int = 0
) -> float:
    """Seconds to wait after a batch; 0 if the batch was cut, because more has come already.

    ``prepared_changes`` came before the batch, which has the COMMIT PREPAREDs of the changes.
    """
    small = batch.nchanges + prepared_changes <= SMALL_TRANSACTION_CHANGES * batch.ntxns
    cut = batch.nchanges + SMALL_TRANSACTION_CHANGES > batch_max_rows
    return batch_delay if batch.ntxns >= BATCH_DELAY_TRANSACTIONS and small and not cut else 0.0


def wait_for_more(latch: Latch, seconds: float, enough: Callable[[], bool]) -> None:
    """Wait at most ``seconds``, until there is enough or no more transactions come.

    The latch is set whenever a transaction comes, and is reset here. So the caller looks at the
    spool, the signals and the catalog afterwards.
    """
    until = monotonic() + seconds
    while not enough() and (left := until - monotonic()) > 0:
        if not latch.wait(min(BATCH_DELAY_QUIET_SECONDS, left)):
            return
