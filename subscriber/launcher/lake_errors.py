"""Does the lake server fail every subscription, although it answers the lake watch?

A server may answer and be of no use: a handle on a disk is stale, the connection to the catalog is
broken, a library is in a bad state. Then every worker ends with an error of the lake, again and
again, and a new process would work. The launcher sees the errors, not the cause. When every
subscription with workers has had errors of the lake for ``LAKE_ERRORS_SECONDS``, without progress,
the server is replaced. A full disk is no reason: a new server finds the disk as full. If only some
subscriptions or tables fail, the cause lies in them, and the server stays.

Nothing is decided while a failing worker runs, or while any sync worker copies a table or catches
up. A copy of hours beside an apply worker that fails for a lost file shows that the server works,
and would never end if the server were replaced under the copy. A copy holds a useless server up
only until the copy meets the error too. Only a running apply worker starts further sync workers,
and a failing apply worker waits between two attempts. A sync worker that waits for its apply worker
counts for nothing: the wait may be for ever.

A lasting cause, say a lost file of the only table, looks the same. So ``LakeChild.replace`` spares
a young server, and the age doubles with each replacement, up to an hour. A trace::

       0  a ends: the lake's storage failed       b applies a batch
      20  b ends: the lake failed                 all fail: the clock starts
     320  no success since                        the server is replaced
     331  the new server is up, a and b start
     331  a applies a batch                       its error is forgotten, the clock stops
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from catalog.last_error import LastError
from catalog.remedies import LAKE_FAILED, LAKE_STORAGE_FAILED
from catalog.store_sqlite import CatalogStore
from config.monitor_limits import LAKE_ERRORS_POLL_SECONDS, LAKE_ERRORS_SECONDS
from workers.process.worker_slots import LogicalRepWorker, is_wanted

Place = tuple[int, int]
"""A subscription's oid, and the relid of a table; 0 for the apply worker."""


def failing_places(
    tables: Mapping[int, Collection[int]], errors: Sequence[LastError]
) -> set[Place] | None:
    """The workers that the lake fails, if the lake fails every subscription; else None.

    ``tables`` are the relids by oid. The apply worker of a subscription whose tables are all being
    copied may run well: then the errors of all its tables count.
    """
    words = (LAKE_FAILED, LAKE_STORAGE_FAILED)
    failed = {(each.subid, each.relid) for each in errors if each.message.startswith(words)}
    found: set[Place] = set()
    for subid, relids in tables.items():
        of_tables = {(subid, relid) for relid in relids}
        if (subid, 0) in failed:
            found.add((subid, 0))
        elif of_tables and of_tables <= failed:
            found |= of_tables
        else:
            return None
    return found or None


class LakeErrors:
    """The time since which all subscriptions fail; the launcher's loop calls ``poll``."""

    def __init__(self, store: CatalogStore) -> None:
        self._store = store
        self._lake_pid: int | None = None
        self._since: float | None = None
        self._next_look = 0.0

    def poll(
        self, now: float, lake_pid: int | None, workers: Collection[LogicalRepWorker]
    ) -> str | None:
        """The reason to replace the server; None without. Raises an error of the catalog.

        ``workers`` are those that run. A worker that runs after an error may be about to succeed,
        and a batch may take longer than the time here. A copy may take hours.
        """
        if lake_pid != self._lake_pid:
            self._lake_pid, self._since = lake_pid, None
        if lake_pid is None or now < self._next_look:
            return None
        self._next_look = now + LAKE_ERRORS_POLL_SECONDS
        errors = self._store.last_errors()
        failing = failing_places(self._tables(), errors) if errors else None
        if failing is None:
            self._since = None
            return None
        if self._since is None:
            self._since = now
        if now - self._since < LAKE_ERRORS_SECONDS:
            return None
        if any(each.is_filling or (each.subid, each.relid) in failing for each in workers):
            return None
        return f"every subscription has failed with its errors for {now - self._since:.0f} s"

    def _tables(self) -> dict[int, list[int]]:
        return {
            sub.oid: [rel.srrelid for rel in self._store.rels(sub.oid)]
            for sub in self._store.subscriptions()
            if is_wanted(sub)
        }
