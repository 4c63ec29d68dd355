"""Shape a log line: as PostgreSQL's text, or as JSON with the keys of PostgreSQL's ``jsonlog``.

::

    2026-11-21 04:15:40.871 UTC [415] apply 16384/0 ERROR:  action=error subid=16384 … is used
    2026-11-21 04:15:40.871 UTC [415] apply 16384/0 HINT:  …

    {"timestamp": "2026-11-21 04:15:40.871 UTC", "pid": 415, "error_severity": "ERROR",
     "state_code": "55006", "message": "… is used", "hint": "…",
     "backend_type": "logical replication apply worker", "application_name": "apply 16384/0",
     "action": "error", "subid": 16384, "relid": 0}

JSON has one object a line. Named values at the beginning of a message (``subid=16384``) become
keys, and the sentence behind the values becomes ``message``. A named value with a key of
PostgreSQL's keeps PostgreSQL's meaning: a worker's ``pid`` in a message of the launcher becomes
``worker_pid``.
"""

from __future__ import annotations

import json
import logging
import re
import time
from dataclasses import dataclass
from typing import Any, Final, Literal

from catalog.namespace import printable

LogFormat = Literal["text", "json"]

_LEVELS: Final = {
    logging.DEBUG: "DEBUG",
    logging.INFO: "LOG",
    logging.WARNING: "WARNING",
    logging.ERROR: "ERROR",
    logging.CRITICAL: "FATAL",
}
_FIELDS: Final = ("DETAIL", "HINT", "CONTEXT")
_BACKEND_TYPES: Final = {
    "launcher": "logical replication launcher",
    "apply": "logical replication apply worker",
    "tablesync": "logical replication tablesync worker",
}
_NAMED_VALUE: Final = re.compile(r"([a-z_]+)=(\S*)(?:\s+|$)")
_RENAMED: Final = {"sqlstate": "state_code", "pid": "worker_pid"}
_NUMBER: Final = re.compile(r"[0-9]{1,15}")


@dataclass(frozen=True, slots=True)
class Line:
    """One event of the log; ``fields`` are DETAIL, HINT and CONTEXT, as far as present.

    ``repeated`` is the number of equal lines that were counted and not written.
    """

    name: str
    created: float
    pid: int
    level: str
    message: str
    fields: tuple[tuple[str, str], ...] = ()
    repeated: int = 0

    def named_values(self) -> tuple[dict[str, str], str]:
        """The values at the beginning of the message by name, and the sentence behind them."""
        values: dict[str, str] = {}
        at = 0
        while found := _NAMED_VALUE.match(self.message, at):
            values.setdefault(found[1], found[2])
            at = found.end()
        return values, self.message[at:]


def line_of(name: str, record: logging.LogRecord) -> Line:
    """The line of a record, written by the process ``name``."""
    fields = [(key, text) for key in _FIELDS if (text := record.__dict__.get(key))]
    if record.exc_info:
        fields.append(("CONTEXT", logging.Formatter().formatException(record.exc_info)))
    level = _LEVELS.get(record.levelno, record.levelname)
    pid = record.process or 0
    return Line(name, record.created, pid, level, record.getMessage(), tuple(fields))


def as_text(line: Line) -> str:
    """``log_line_prefix = '%m [%p] %a '``; a tab indents further lines of a field."""
    prefix = f"{timestamp(line.created)} [{line.pid}] {line.name}"
    parts = [(line.level, line.message), *line.fields]
    if line.repeated:
        parts.append(("CONTEXT", f"{line.repeated} more equal lines were counted and not written."))
    return "\n".join(
        f"{prefix} {label}:  " + printable(text).replace("\n", "\n\t") for label, text in parts
    )


def as_json(line: Line) -> str:
    """One JSON object in ASCII: no text of a message can forge a line or move a cursor."""
    values, sentence = line.named_values()
    process, _, of = line.name.partition(" ")
    subid, _, relid = of.partition("/")
    if relid:
        values = {"subid": subid, "relid": relid} | values
    entry: dict[str, Any] = {
        "timestamp": timestamp(line.created),
        "pid": line.pid,
        "error_severity": line.level,
        "state_code": None,
        "message": sentence,
        **{key.lower(): "\n".join(t for k, t in line.fields if k == key) for key in _FIELDS},
        "backend_type": _BACKEND_TYPES.get(process, line.name),
        "application_name": line.name,
    }
    for key, text in values.items():
        key = _RENAMED.get(key, key)
        if not entry.get(key):
            is_number = key != "state_code" and _NUMBER.fullmatch(text)
            entry[key] = int(text) if is_number else text
    if line.repeated:
        entry["repeated"] = line.repeated
    return json.dumps({key: value for key, value in entry.items() if value not in (None, "")})


def timestamp(seconds: float) -> str:
    """A time with milliseconds, in PostgreSQL's form."""
    whole = int(seconds)
    day = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(whole))
    return f"{day}.{int((seconds - whole) * 1000):03d} UTC"
