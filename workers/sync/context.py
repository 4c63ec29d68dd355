"""The objects that a sync worker uses in every step, from the first connection to ``s``.

The table's row in ``pg_subscription_rel`` is not among the objects, because the steps change the
row. Every step gets the row as a parameter, as the step before has left the row.
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
    """The connections and the subscription of a sync worker that is connected to the publisher.

    ``slot`` is the name of the table's replication slot; the slot may not exist yet. ``watch`` ends
    the worker when a standby changes the timeline.
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
