"""A subscription that goes on is waited for; one that stands still is not.

On a loaded machine a seed with large transactions may take long after its faults are healed. What
is confirmed is in the lake, so a position that grows is progress, and received bytes are none: a
worker that starts anew over and over receives the same bytes again.
"""

from __future__ import annotations

from typing import Final

from tests.crash.family import Family, wait_confirmed
from tests.fix_publisher import Database

_ROUNDS: Final = 4
"""So many times the patience at most, however slowly the subscription goes on."""

_CONFIRMED: Final = "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = %s"


def await_confirmed(family: Family, publisher: Database, name: str, patience: float) -> None:
    """Until all that is committed now is confirmed; fails if nothing was within ``patience``."""
    target = publisher.lsn()
    rounds = 0
    while True:
        before = publisher.value(_CONFIRMED, (name,))
        try:
            return wait_confirmed(family, publisher, name, lsn=target, timeout=patience)
        except AssertionError:
            rounds += 1
            if rounds == _ROUNDS or publisher.value(_CONFIRMED, (name,)) == before:
                raise
