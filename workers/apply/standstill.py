"""Notice a sync worker that stands still while the apply worker waits for it. Pure.

While a table catches up, the apply worker closes no batch: all tables of the subscription wait for
one process. A dead process is noticed by the launcher. A frozen process is not dead and reports
nothing more. A busy process reports: its receive thread answers keepalives, also during a long call
of the lake. So a worker without any sign for ``SYNC_STANDSTILL_SECONDS`` is stopped, and the table
is synchronised again.

Trace, limit 900 s: table 7 is in c and was last heard of at 10:00:10, with position 0/500. At
10:15:10 the sign is the same: the worker is stopped, and the next sync worker begins again.
"""

from __future__ import annotations

from collections.abc import Hashable

from config.limits import SYNC_STANDSTILL_SECONDS


class StandstillWatch:
    """The last sign of each awaited sync worker, by relid, and when the sign was new."""

    def __init__(self) -> None:
        self._signs: dict[int, tuple[Hashable, float]] = {}

    def stands_still(self, relid: int, sign: Hashable, now: float) -> bool:
        """True once if ``sign`` has been the same for too long; ``now`` is monotonic seconds."""
        known, since = self._signs.get(relid, (None, now))
        if known != sign:
            self._signs[relid] = (sign, now)
            return False
        if now - since < SYNC_STANDSTILL_SECONDS:
            return False
        del self._signs[relid]
        return True
