"""Replication slots as the publisher shows them.

Read through JSON where a column is younger than the oldest server there is: ``wal_status`` came
with version 13, ``conflicting`` with 16, ``invalidation_reason`` with 17.
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
    """A replication slot; ``ours`` is a pgoutput slot of our database.

    ``invalidation`` is why it is good for nothing any more, None for one that is sound.
    """

    active: bool
    active_pid: int | None
    confirmed_flush_lsn: LSN | None
    ours: bool
    plugin: str | None = None
    database: str | None = None
    invalidation: str | None = None


def fetch_slot(conn: QueryConn, name: str) -> RemoteSlot | None:
    """A replication slot by name, None if there is none."""
    rows = conn.exec(query("slot", slot=quote_literal(name)))
    if not rows:
        return None
    plugin, kind, database, active, pid, confirmed, here, status, reason, conflicting = rows[0]
    return RemoteSlot(
        active=active == "t",
        active_pid=None if pid is None else int(pid),
        confirmed_flush_lsn=None if confirmed is None else LSN.parse(confirmed),
        ours=(plugin, kind, database) == ("pgoutput", "logical", here),
        plugin=plugin,
        database=database,
        invalidation=_invalidation(status, reason, conflicting),
    )


def fetch_sync_slots(conn: QueryConn, sysid: str) -> list[str]:
    """The slots that synchronisations of a subscription left, whatever its oid was then.

    ``sysid`` is the number that it has instead of a system identifier: nobody else's slots end
    with it.
    """
    pattern = quote_literal(sync_slot_pattern(sysid))
    rows = conn.exec(query("sync_slots", pattern=pattern))
    return [name for (name,) in rows if name is not None]


def _invalidation(status: str | None, reason: str | None, conflicting: str | None) -> str | None:
    """PostgreSQL 17's word for why a slot was invalidated; before, what tells that it was."""
    if reason is not None:
        return reason
    if status == "lost":
        return "wal_removed"
    return "recovery_conflict" if conflicting == "true" else None


def is_in_recovery(conn: QueryConn) -> bool:
    """Whether the publisher is a standby."""
    return conn.exec(query("is_in_recovery"))[0][0] == "t"


def alter_slot(
    conn: QueryConn, name: str, *, failover: bool | None = None, two_phase: bool | None = None
) -> None:
    """Change the properties that are given; 08006 with the publisher's words if it refuses."""
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
