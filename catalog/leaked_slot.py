"""Replication slots that stay on a publisher and hold back WAL. PostgreSQL has no such catalog."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from catalog.pg_subscription import Subscription, sync_slot_pattern

_SYNC_SLOT: Final = re.compile(sync_slot_pattern("[0-9]+"))


@dataclass(frozen=True, slots=True)
class LeakedSlot:
    """A replication slot that no command could remove from the publisher, and the reason.

    ``conninfo`` is the connection string at the time, "" once forgotten. ``sysid`` and ``datoid``
    name the server and the database, "" and None if unknown. A different connection string may
    reach the server today.
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
        """The sentence that messages say about the slot."""
        return f'replication slot "{self.slot_name}" stays on the publisher: {self.reason}'

    @property
    def has_subscription_number(self) -> bool:
        """Whether the name ends in a number of a single subscription."""
        return _SYNC_SLOT.match(self.slot_name) is not None

    def is_dropped_through(self, sub: Subscription) -> bool:
        """Whether a command may drop the slot through the subscription's connection string.

        The user chose the name of a main slot, and a clone of a server has the system identifier,
        the databases and the slots of the server: a slot of the name may belong to a different
        subscription on a clone. A command drops a main slot through the old connection string only.
        """
        return self.is_on(sub) and (
            self.has_subscription_number or self.conninfo == sub.subconninfo
        )

    def is_on(self, sub: Subscription) -> bool:
        """Whether server and database are the subscription's, through any connection string."""
        if not self.sysid or sub.sysid is None:
            return self.conninfo == sub.subconninfo
        return self.sysid == sub.sysid and self.datoid in (None, sub.datoid)


def leaked_slot(sub: Subscription, name: str, reason: str) -> LeakedSlot:
    """A slot of the subscription on the present publisher."""
    return LeakedSlot(
        slot_name=name,
        conninfo=sub.subconninfo,
        subname=sub.subname,
        passfile=sub.passfile,
        reason=reason,
        sysid=sub.sysid or "",
        datoid=sub.datoid,
    )
