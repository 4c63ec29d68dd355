"""Ask a publisher how far a slot is behind, for a monitor: one query, one answer.

The slot's position and the server's position come from one statement, so the difference belongs to
one moment. The slot may still move within the statement, so the statement itself keeps the
difference from falling below 0. An older server lacks ``wal_status`` and ``safe_wal_size`` (13):
the fields are None.
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog.namespace import quote_literal
from workers.publisher.interfaces import QueryConn
from workers.publisher.queries import query, to_number


@dataclass(frozen=True, slots=True)
class SlotLag:
    """A slot as the publisher sees it; sizes in bytes.

    ``lag_bytes`` is the WAL behind ``confirmed_flush_lsn``. ``safe_wal_size`` is the WAL that may
    still be written before the slot is lost, None without a limit.
    """

    active: bool
    lag_bytes: int
    wal_status: str | None = None
    safe_wal_size: int | None = None


def fetch_slot_lag(conn: QueryConn, name: str) -> SlotLag | None:
    """Read a slot; None if no slot has the name."""
    rows = conn.exec(query("slot_lag", slot=quote_literal(name)))
    if not rows:
        return None
    active, lag, status, safe = rows[0]
    return SlotLag(active == "t", to_number(lag), status, None if safe is None else int(safe))
