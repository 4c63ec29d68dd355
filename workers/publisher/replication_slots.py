"""Read and alter replication slots on the publisher.

The query reads newer columns through JSON, because old servers lack them: ``wal_status`` came with
version 13, ``conflicting`` with 16, ``invalidation_reason`` with 17.
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog.errcodes import ConnectionFailure, ReplicationError
from catalog.namespace import quote_identifier, quote_literal
from catalog.pg_lsn import LSN
from catalog.pg_subscription import sync_slot_pattern
from workers.publisher.interfaces import QueryConn
from workers.publisher.queries import query


@dataclass(frozen=True, slots=True)
class RemoteSlot:
    """A replication slot; ``is_pgoutput_here``: of pgoutput, in the connection's database.

    ``invalidation`` is the reason why the slot is unusable, None for a valid slot.
    """

    active: bool
    active_pid: int | None
    confirmed_flush_lsn: LSN | None
    is_pgoutput_here: bool
    plugin: str | None = None
    database: str | None = None
    invalidation: str | None = None


def fetch_slot(conn: QueryConn, name: str) -> RemoteSlot | None:
    """Read a replication slot by name; None if no slot has the name."""
    rows = conn.exec(query("slot", slot=quote_literal(name)))
    if not rows:
        return None
    plugin, kind, database, active, pid, confirmed, here, status, reason, conflicting = rows[0]
    return RemoteSlot(
        active=active == "t",
        active_pid=None if pid is None else int(pid),
        confirmed_flush_lsn=None if confirmed is None else LSN.parse(confirmed),
        is_pgoutput_here=(plugin, kind, database) == ("pgoutput", "logical", here),
        plugin=plugin,
        database=database,
        invalidation=_invalidation(status, reason, conflicting),
    )


def fetch_sync_slots(conn: QueryConn, sysid: str) -> list[str]:
    """The names of the slots that a subscription's synchronisations left, under any oid.

    ``sysid`` is the subscription's number in the place of the system identifier: no slot of
    another subscription ends with the number.
    """
    pattern = quote_literal(sync_slot_pattern(sysid))
    rows = conn.exec(query("sync_slots", pattern=pattern))
    return [name for (name,) in rows if name is not None]


def _invalidation(status: str | None, reason: str | None, conflicting: str | None) -> str | None:
    """The reason of an invalidation in PostgreSQL 17's words, also for older servers."""
    if reason is not None:
        return reason
    if status == "lost":
        return "wal_removed"
    return "recovery_conflict" if conflicting == "true" else None


def is_in_recovery(conn: QueryConn) -> bool:
    """True if the publisher is a standby."""
    return conn.exec(query("is_in_recovery"))[0][0] == "t"


def alter_slot(
    conn: QueryConn, name: str, *, failover: bool | None = None, two_phase: bool | None = None
) -> None:
    """Change the given properties; raise 08006 with the publisher's words after a refusal."""
    given = {"FAILOVER": failover, "TWO_PHASE": two_phase}
    options = ", ".join(
        f"{option} {'true' if value else 'false'}"
        for option, value in given.items()
        if value is not None
    )
    try:
        conn.exec(f"ALTER_REPLICATION_SLOT {quote_identifier(name)} ( {options} )")
    except ReplicationError as error:
        raise ConnectionFailure(
            f'could not alter replication slot "{name}" on publisher: {error.primary}',
            detail=error.detail,
            hint=error.hint,
        ) from None
