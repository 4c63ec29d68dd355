"""What a side costs: the memory of processes, their CPU time, what they keep in unlinked files."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import psutil
import psycopg

MB: Final = 2**20
_EVERY: Final = 0.25
_PROC: Final = Path("/proc")


class Peaks(threading.Thread):
    """The largest values that a measure gave, looked at four times a second until ``stop``.

    ``series`` has every look: the seconds since the start, and what was seen. A look that fails
    because a process or a connection ends in the middle of it is left out.
    """

    def __init__(self, measure: Callable[[], dict[str, float]]) -> None:
        super().__init__(daemon=True)
        self.peak: dict[str, float] = {}
        self.series: list[tuple[float, dict[str, float]]] = []
        self._measure = measure
        self._ending = threading.Event()
        self._began = time.monotonic()

    def run(self) -> None:
        ended = False
        while not ended:
            with contextlib.suppress(psutil.Error, psycopg.Error, OSError):
                self._look()
            ended = self._ending.wait(_EVERY)

    def _look(self) -> None:
        seen = self._measure()
        self.series.append((time.monotonic() - self._began, seen))
        for name, value in seen.items():
            self.peak[name] = max(self.peak.get(name, 0.0), round(value, 1))

    def stop(self) -> dict[str, float]:
        """End, and say what was seen."""
        self._ending.set()
        self.join()
        return self.peak


def high_water(pid: int) -> float:
    """The largest RSS that a process ever had, in MB; 0 where the system does not tell."""
    return _told_mb(pid, "status", "VmHWM:")


def proportional_mb(pid: int) -> float:
    """What a process has in memory, in MB: a page that n processes share counts 1/n (its PSS).

    0 where the system does not tell.
    """
    return _told_mb(pid, "smaps_rollup", "Pss:")


def anonymous_mb(pid: int) -> float:
    """What a process has in memory that is in no file, in MB; 0 where the system does not tell."""
    return _told_mb(pid, "smaps_rollup", "Anonymous:")


def _told_mb(pid: int, file: str, name: str) -> float:
    """A size that the system tells in kB."""
    with contextlib.suppress(OSError):
        for line in (_PROC / str(pid) / file).read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) / 1024
    return 0.0


def cpu_seconds(processes: Iterable[psutil.Process]) -> float:
    """User and system time of processes and of those of their children that have ended.

    So the difference of two looks at a whole family counts also who came and went between them.
    """
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def tree(pid: int) -> list[psutil.Process]:
    """A process and all that live below it."""
    top = psutil.Process(pid)
    return [top, *top.children(recursive=True)]


def open_files_mb(pid: int, folder: Path) -> float:
    """MB in the files below a folder that a process has open, unlinked ones too (Linux; else 0)."""
    sizes = {}
    for link in (_PROC / str(pid) / "fd").glob("*"):
        with contextlib.suppress(OSError):
            if Path(os.readlink(link)).is_relative_to(folder.resolve()):
                found = link.stat()
                sizes[found.st_ino] = found.st_size  # a mapping has its file open once more
    return sum(sizes.values()) / MB


def files_mb(folder: Path) -> float:
    """MB in the files below a folder; one that goes meanwhile does not count."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file():
                total += path.stat().st_size
    return total / MB
