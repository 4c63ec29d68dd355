"""Processes that may end while a test looks at them."""

from __future__ import annotations

from contextlib import suppress

import psutil


def command_line(process: psutil.Process) -> list[str]:
    """The arguments of a process; none of a process that has ended, a zombie too."""
    with suppress(psutil.NoSuchProcess):
        return list(process.cmdline())
    return []


def name_of(process: psutil.Process) -> str:
    """The name of a process; empty for a process that has ended."""
    with suppress(psutil.NoSuchProcess):
        return str(process.name())
    return ""
