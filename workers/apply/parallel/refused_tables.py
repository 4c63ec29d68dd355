"""Remember tables whose files were refused at a commit: the next transaction would fare no better.

The keys of updates and deletes with files are looked up in the table's files at the commit. A table
may have too many files, or files that only Spark can read. Nobody knows before the look-up. Then
the transaction is applied a second time, without the files written before the commit. For an hour
updates and deletes of the table wait for the commit from the first piece on: one transaction an
hour is applied twice. Inserts are never looked up, and their files are never refused.

Maintenance may join the files meanwhile, so the memory is no longer than an hour. Nothing is
stored: a new worker asks the first transaction.

Trace::

    12:00   T1 updates t: files, a refusal, applied without files
    12:10   T2 updates t: no files before the commit
    13:05   T3 updates t: files; t has 300 files by now, and the keys are found
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from config.monitor_limits import PARALLEL_REFUSED_SECONDS

log = logging.getLogger(__name__)


class RefusedTables:
    """The tables with a refusal in the last ``PARALLEL_REFUSED_SECONDS``."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[int, float] = {}

    def note(self, subid: int, relids: Iterable[int]) -> None:
        """Remember refusals of now."""
        for relid in relids:
            self._since[relid] = self._clock()
            log.info(
                "action=parallel_refused subid=%d relid=%d updates and deletes wait for the commit",
                subid,
                relid,
            )

    def __contains__(self, relid: int) -> bool:
        """Was a transaction applied twice because of the table, not long ago?"""
        since = self._since.get(relid)
        if since is None:
            return False
        if self._clock() - since < PARALLEL_REFUSED_SECONDS:
            return True
        del self._since[relid]
        return False
