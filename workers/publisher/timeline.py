"""A server's timeline history: which WAL it shares with the timelines before its own. Pure.

PostgreSQL's ``timeline.c``. A server that is promoted, or recovered to a point in time, leaves its
timeline at a *switch point* and goes on under a new number; its history file has a line for each
timeline it came through. A position that was received on one of them means the same on the new one
if it lies at or before the switch point, and something else, or nothing, if it lies behind it::

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
    """A timeline that a server came through, and where it left it."""

    tli: int
    switchpoint: LSN


TimeLineHistory = tuple[TimeLineHistoryEntry, ...]


def parse_timeline_history(tli: int, content: str) -> TimeLineHistory:
    """``readTimeLineHistory``: the lines of timeline ``tli``'s history file, oldest first.

    08P01 for anything that PostgreSQL would not write there.
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
    """``tliSwitchPoint``: where timeline ``tli`` was left; None if it is not in the history."""
    return next((entry.switchpoint for entry in history if entry.tli == tli), None)


def _malformed(tli: int, detail: str) -> ProtocolViolation:
    return ProtocolViolation(f"invalid data in history file of timeline {tli}", detail=detail)
