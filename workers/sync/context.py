"""What one try to synchronise a table works with, from its first connection to ``s``.

The table's row in ``pg_subscription_rel`` is not part of it: the row changes on the way, and each
step gets the row as the step before has left it.
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog.pg_subscription import Subscription
from catalog.store_sqlite import CatalogStore
from workers.lake.destination import Destination
from workers.process.worker_process import WorkerProcess
from workers.publisher.connection import WalReceiverConn
from workers.publisher.standby_watch import StandbyWatch


@dataclass(frozen=True, slots=True)
class SyncContext:
    """A sync worker that is connected to the publisher.

    ``slot`` is the name of the table's replication slot, which may not exist yet. ``watch`` ends
    the worker when a standby changes its timeline.
    """

    process: WorkerProcess
    conn: WalReceiverConn
    watch: StandbyWatch
    slot: str
    sub: Subscription
    dest: Destination

    @property
    def store(self) -> CatalogStore:
        """The catalog."""
        return self.process.store
