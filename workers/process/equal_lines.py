"""Limit equal lines of the log, over all processes of a data directory, and count the rest.

A failure that lasts a night starts hundreds of workers, and every worker logs the same error. The
first ``LOG_EQUAL_LINES`` within ``LOG_EQUAL_SECONDS`` are written, further equal lines are counted.
After that time the next line of any process brings the counted line once more, with the count.

Lines are equal if process name, level, text and fields are equal, apart from process ids, slots and
generations of workers. The counts are in a small file beside the log, so that they outlive a worker
and the launcher. The file is not worth a wait: if another process has the file locked, or the disk
is full, the line is written and not counted.

Trace, with a limit of 2 lines in 600 s::

      0  cannot connect      written
      5  cannot connect      written
     10  cannot connect      counted: 1
    ...
    595  cannot connect      counted: 118
    600  cannot connect      written: "118 more equal lines were counted and not written", then
                             the line itself, the first of the next 600 s
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from config.monitor_limits import (
    LOG_EQUAL_LINES,
    LOG_EQUAL_SECONDS,
    LOG_EQUAL_TEXTS,
)
from workers.process.log_format import Line

FILE_NAME: Final = "equal_lines.json"

_NEVER_LIMITED: Final = frozenset({"start", "ready", "shutdown", "stop", "reload"})
"""Actions of the launcher's life: an operator and a script look for each."""

_CHANGING: Final = re.compile(r"\b(pid|slot|generation)=\d+")

Counts = dict[str, dict[str, Any]]
"""Digest of a line → ``since``, ``written``, ``counted`` and the line itself."""


class EqualLines:
    """Decides which lines are written; ``folder`` is the folder of the log."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME

    def admit(self, line: Line) -> list[Line]:
        """The lines to write now: counted lines whose time is over, and ``line`` if admitted."""
        if line.named_values()[0].get("action") in _NEVER_LIMITED:
            return [line]
        try:
            with _locked(self._path) as fd:
                counts = _read(fd)
                due, counts = take_due(counts, line.created)
                written = count(counts, line)
                _write(fd, counts)
        except OSError:
            return [line]
        due = [replace(each, created=line.created, pid=line.pid) for each in due]
        return [*due, line] if written else due


def take_due(counts: Counts, now: float) -> tuple[list[Line], Counts]:
    """The counted lines whose time is over, and the counts that remain."""
    due: list[Line] = []
    kept: Counts = {}
    for digest, entry in counts.items():
        if 0 <= now - entry["since"] < LOG_EQUAL_SECONDS:
            kept[digest] = entry
        elif entry["counted"]:
            due.append(_line(entry["line"], entry["counted"]))
    return due, kept


def count(counts: Counts, line: Line) -> bool:
    """Count a line; is the line to be written?"""
    digest = _digest(line)
    entry = counts.get(digest)
    if entry is None:
        while len(counts) >= LOG_EQUAL_TEXTS:
            uncounted = (key for key, each in counts.items() if not each["counted"])
            oldest = next(uncounted, None)
            if oldest is None:
                return True
            del counts[oldest]
        counts[digest] = {"since": line.created, "written": 1, "counted": 0}
        return True
    if entry["written"] < LOG_EQUAL_LINES:
        entry["written"] += 1
        return True
    entry["counted"] += 1
    entry["line"] = asdict(line)
    return False


def _digest(line: Line) -> str:
    same = _CHANGING.sub("", line.message)
    text = json.dumps([line.name, line.level, same, line.fields])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _line(stored: dict[str, Any], counted: int) -> Line:
    fields = tuple((key, text) for key, text in stored["fields"])
    return Line(**{**stored, "fields": fields, "repeated": counted})


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """The open file, locked; ``OSError`` if another process holds the lock."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield fd
    finally:
        os.close(fd)


def _read(fd: int) -> Counts:
    """The counts; none if a power cut or a person left another content."""
    try:
        found = json.loads(os.pread(fd, os.fstat(fd).st_size, 0) or b"{}")
        for entry in found.values():
            float(entry["since"]) + entry["written"] + entry["counted"]
            if entry["counted"]:
                _line(entry["line"], 0)
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}
    return dict(found)


def _write(fd: int, counts: Counts) -> None:
    data = json.dumps(counts).encode()
    os.pwrite(fd, data, 0)
    os.ftruncate(fd, len(data))
