"""Replication slots that stay on a publisher: ours, so that what holds back WAL there is known."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.pg_subscription import Subscription


@dataclass(frozen=True, slots=True)
class LeakedSlot:
    """A replication slot that nobody could remove from the publisher, and why."""

    slot_name: str
    conninfo: str
    subname: str
    passfile: str | None
    reason: str

    @property
    def stays(self) -> str:
        """For people."""
        return f'replication slot "{self.slot_name}" stays on the publisher: {self.reason}'


def leaked_slot(sub: Subscription, name: str, reason: str) -> LeakedSlot:
    """A slot of the subscription's, on the publisher that it has."""
    return LeakedSlot(
        slot_name=name,
        conninfo=sub.subconninfo,
        subname=sub.subname,
        passfile=sub.passfile,
        reason=reason,
    )
