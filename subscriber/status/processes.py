"""Read processor time and memory of a process from the kernel; Linux only."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_UTIME, _STIME, _RSS = 11, 12, 21
"""Fields of ``/proc/PID/stat`` behind the name in parentheses."""


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """Processor seconds since the start of a process, and resident bytes."""

    cpu_seconds: float
    resident_bytes: int


def process_use(pid: int | None) -> ProcessUse | None:
    """The use of a process; None for a process that has ended, or on another system."""
    if pid is None or sys.platform != "linux":
        return None
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    words = stat.rpartition(")")[2].split()
    ticks = int(words[_UTIME]) + int(words[_STIME])
    return ProcessUse(
        ticks / os.sysconf("SC_CLK_TCK"), int(words[_RSS]) * os.sysconf("SC_PAGE_SIZE")
    )
