"""The last ERROR of every worker in the log, for the demo's display.

The growing log is read again and again; the lines are ``workers.process.log``'s::

    … tablesync 16384/16390 ERROR:  action=error subid=16384 relid=16390 sqlstate=42501 permission …
    … tablesync 16384/16390 HINT:  Grant it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from config.monitor_limits import DEMO_LOG_BYTES
from workers.process.log import LOG_DIRECTORY, LOG_FILE

_LINE: Final = re.compile(r"\S+ \S+ UTC \[\d+\] (?P<worker>.+?) (?P<label>[A-Z]+):  (?P<text>.*)")
_ERROR: Final = re.compile(
    r"action=\w+(?P<keys>(?: \w+=\S+)*?) sqlstate=(?P<code>\w+) (?P<message>.*)"
)
_RELID: Final = re.compile(r" relid=(\d+)")


@dataclass(frozen=True, slots=True)
class LoggedError:
    """An ERROR line with its hint; ``relid`` is 0 except for a table's worker."""

    moment: float
    relid: int
    text: str
    hint: str = ""


@dataclass(slots=True)
class LastErrors:
    """The last error of every table's worker (0: of the apply worker)."""

    data_dir: Path
    errors: dict[int, LoggedError] = field(default_factory=dict)
    _offset: int = 0
    _rest: bytes = b""
    _open: tuple[str, int] = ("", 0)

    def read(self, now: float) -> None:
        """Read the new lines of the log; ``now`` becomes the errors' time."""
        for line in self._new_lines():
            match = _LINE.fullmatch(line)
            if match is None:
                continue
            worker, label, text = match.groups()
            if label == "ERROR":
                self._take_error(worker, text, now)
            elif label == "HINT" and worker == self._open[0]:
                relid = self._open[1]
                self.errors[relid] = replace(self.errors[relid], hint=text)

    def _take_error(self, worker: str, text: str, now: float) -> None:
        match = _ERROR.fullmatch(text)
        if match is None:
            return
        found = _RELID.search(match["keys"])
        relid = int(found.group(1)) if found else 0
        self.errors[relid] = LoggedError(now, relid, f"{match['code']}: {match['message']}")
        self._open = (worker, relid)

    def _new_lines(self) -> Iterator[str]:
        path = self.data_dir / LOG_DIRECTORY / LOG_FILE
        try:
            with path.open("rb") as log:
                log.seek(self._offset)
                data = log.read(DEMO_LOG_BYTES)
        except OSError:
            return
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace")
