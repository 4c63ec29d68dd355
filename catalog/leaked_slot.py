"""Replication slots that stay on a publisher: ours, so that what holds back WAL there is known."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.pg_subscription import Subscription


@dataclass(frozen=True, slots=True)
class LeakedSlot:
    """A replication slot that nobody could remove from the publisher, and why.

    ``conninfo`` is what it was reached by, "" where that is forgotten. ``sysid`` and ``datoid`` are
    the server's and the database's where they were known ("", None), whatever reaches them now.
    """

    slot_name: str
    conninfo: str
    subname: str
    passfile: str | None
    reason: str
    sysid: str = ""
    datoid: int | None = None

    @property
    def stays(self) -> str:
        """For people."""
        return f'replication slot "{self.slot_name}" stays on the publisher: {self.reason}'

    def is_on(self, sub: Subscription) -> bool:
        """Whether it is on the subscription's server and in its database, in whatever words."""
        if not self.sysid or sub.sysid is None:
            return self.conninfo == sub.subconninfo
        return self.sysid == sub.sysid and self.datoid in (None, sub.datoid)


def leaked_slot(sub: Subscription, name: str, reason: str) -> LeakedSlot:
    """A slot of the subscription's, on the publisher that it has."""
    return LeakedSlot(
        slot_name=name,
        conninfo=sub.subconninfo,
        subname=sub.subname,
        passfile=sub.passfile,
        reason=reason,
        sysid=sub.sysid or "",
        datoid=sub.datoid,
    )
