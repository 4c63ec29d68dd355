"""The connections to a publisher, as Protocols: a function asks for the least that it needs.

``workers.publisher.connection.WalReceiverConn`` is the real connection. A test passes a twin.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from catalog.pg_lsn import LSN

Row = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class SystemIdentity:
    """The answer to IDENTIFY_SYSTEM, and the oid of the database, whose name may change."""

    systemid: str
    timeline: int
    xlogpos: LSN
    dbname: str
    datoid: int

    def stored(self) -> dict[str, Any]:
        """The columns of a subscription's row that hold the identity."""
        return {"sysid": self.systemid, "timeline": self.timeline, "datoid": self.datoid}


class QueryConn(Protocol):
    """A connection that runs queries."""

    @property
    def server_version(self) -> int:
        """The major version."""

    def exec(self, sql: str) -> list[Row]:
        """Run a query. Returns the rows as text, NULL as None."""


class IdentityConn(QueryConn, Protocol):
    """A connection that also names the server and reads the server's timeline history."""

    def identify_system(self) -> SystemIdentity:
        """Run IDENTIFY_SYSTEM."""

    def timeline_history(self, tli: int) -> str:
        """Run TIMELINE_HISTORY. Returns the content of the file."""


class ReplicationConn(IdentityConn, Protocol):
    """A replication connection: queries and the commands of the walsender, but no stream."""

    def create_slot(
        self,
        name: str,
        *,
        temporary: bool,
        snapshot: str,
        failover: bool = False,
        two_phase: bool = False,
        timeout: float | None = None,
    ) -> LSN:
        """Run CREATE_REPLICATION_SLOT. Returns the slot's consistent point."""

    def drop_slot(self, name: str, *, wait: bool = True, missing_ok: bool = False) -> None:
        """Run DROP_REPLICATION_SLOT."""

    def close(self) -> None:
        """Close the connection."""
