"""``pg_stat_subscription``: one row per worker, or one with NULLs for a subscription without."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from catalog.pg_lsn import LSN


@dataclass(frozen=True, slots=True)
class StatSubscription:
    """A row of the view, PostgreSQL 18's columns in its order.

    ``relid`` is set for sync workers only. ``received_lsn`` is the highest LSN seen in any
    message; ``latest_end_lsn`` is how far that was at the publisher's last keepalive, and
    ``latest_end_time`` when it sent it.
    """

    subid: int
    subname: str
    worker_type: str | None = None
    pid: int | None = None
    leader_pid: int | None = None
    relid: int | None = None
    received_lsn: LSN | None = None
    last_msg_send_time: datetime | None = None
    last_msg_receipt_time: datetime | None = None
    latest_end_lsn: LSN | None = None
    latest_end_time: datetime | None = None
