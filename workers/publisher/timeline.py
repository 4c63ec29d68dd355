"""Read a server's timeline history: the WAL that the server shares with older timelines. Pure.

PostgreSQL's ``timeline.c``. A server that is promoted, or recovered to a point in time, leaves its
timeline at a *switch point* and goes on under a new number. The history file has a line for each
older timeline. A position that was received on an older timeline means the same on the new timeline
if the position lies at or before the switch point. Beyond the switch point the position means
something different, or nothing::

    1       0/3000148       no recovery target specified
    2       0/5000090       before 2026-11-02 12:00:00+00

Here timeline 3 shares 0/0 to 0/3000148 with timeline 1, and from there to 0/5000090 with 2.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from catalog.errcodes import ProtocolViolation
from catalog.pg_lsn import LSN

_ENTRY: Final = re.compile(r"(\d+)(?:\s+([0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8})(?!\S))?")


@dataclass(frozen=True, slots=True)
class TimeLineHistoryEntry:
    """An older timeline of a server, and the position at which the server left the timeline."""

    tli: int
    switchpoint: LSN


TimeLineHistory = tuple[TimeLineHistoryEntry, ...]


def parse_timeline_history(tli: int, content: str) -> TimeLineHistory:
    """``readTimeLineHistory``: parse the history file of timeline ``tli``, oldest entry first.

    Raises 08P01 for any line that PostgreSQL would not write.
    """
    history: list[TimeLineHistoryEntry] = []
    for line in content.splitlines():
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        found = _ENTRY.match(text)
        if found is None:
            raise _malformed(tli, "Expected a numeric timeline ID.")
        if found[2] is None:
            raise _malformed(tli, "Expected a write-ahead log switchpoint location.")
        entry = TimeLineHistoryEntry(int(found[1]), LSN.parse(found[2]))
        if history and entry.tli <= history[-1].tli:
            raise _malformed(tli, "Timeline IDs must be in increasing sequence.")
        history.append(entry)
    if history and history[-1].tli >= tli:
        raise _malformed(tli, "Timeline IDs must be less than child timeline's ID.")
    return tuple(history)


def tli_switch_point(tli: int, history: TimeLineHistory) -> LSN | None:
    """``tliSwitchPoint``: the end of timeline ``tli``; None if the history lacks the timeline."""
    return next((entry.switchpoint for entry in history if entry.tli == tli), None)


def _malformed(tli: int, detail: str) -> ProtocolViolation:
    return ProtocolViolation(f"invalid data in history file of timeline {tli}", detail=detail)
