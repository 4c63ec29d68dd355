"""ALTER_REPLICATION_SLOT: what libpqwalreceiver's ``walrcv_alter_slot`` sends.

Failover can be altered from PostgreSQL 17 on, two_phase from 18 on.
"""

from __future__ import annotations

from catalog.errcodes import ConnectionFailure, ReplicationError
from catalog.namespace import quote_identifier
from workers.publication import PublisherConn


def alter_slot(
    conn: PublisherConn, name: str, *, failover: bool | None = None, two_phase: bool | None = None
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
