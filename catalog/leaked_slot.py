"""Replication slots that stay on a publisher: ours, so that what holds back WAL there is known."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from catalog.pg_subscription import Subscription, sync_slot_pattern

_SYNC_SLOT: Final = re.compile(sync_slot_pattern("[0-9]+"))


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

    @property
    def has_own_number(self) -> bool:
        """Whether its name ends in a number that only one subscription's slots have."""
        return _SYNC_SLOT.match(self.slot_name) is not None

    def is_dropped_through(self, sub: Subscription) -> bool:
        """Whether a command that reaches the subscription's publisher may drop it there.

        The name of a main slot is the user's, and a clone of a server has its system identifier,
        its database and its slots: there, one of this name may be somebody else's. Such a slot is
        dropped only in the words that it was reached by.
        """
        return self.is_on(sub) and (self.has_own_number or self.conninfo == sub.subconninfo)

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
