"""Write log lines in PostgreSQL's form, for every process of a data directory, to one file.

::

    2026-11-21 04:15:39.123 UTC [412] launcher LOG:  action=worker_start subid=16384 relid=0 pid=415
    2026-11-21 04:15:40.871 UTC [415] apply 16384/0 ERROR:  action=error subid=16384 relid=0 …
    2026-11-21 04:15:40.871 UTC [415] apply 16384/0 HINT:  …

A message begins with ``action=`` and a word that is stable from version to version. Then come
``subid``, ``relid``, ``lsn`` and further keys, then a sentence for people. With
``log_format: json`` a line is a JSON object (``log_format``). Equal lines are limited and counted
(``equal_lines``). Lines go to
``<data directory>/log/pgsub.log`` and to the launcher's standard error. The standard error of a
worker *is* the log file, so that the file also gets the last words of a dying interpreter. A worker
reaches the launcher's standard error by a further descriptor, named in the environment.

The file is rotated by its size: ``pgsub.log`` becomes ``pgsub.log.1``, and so on. Every process
appends with one system call and looks at the file before. The process that finds the file large
renames the file under a lock; the others find another file under the name and open the new file.
A line that a process writes meanwhile goes to the renamed file: no line is lost.

Loggers of libraries are silent: their messages may quote values of a row.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from catalog.errcodes import IoError, ReplicationError, internal_error
from config.monitor_limits import (
    LOG_FILE_BYTES,
    LOG_KEPT_FILES,
)
from workers.process.equal_lines import EqualLines
from workers.process.log_format import Line, LogFormat, as_json, as_text, line_of

LOG_DIRECTORY: Final = "log"
LOG_FILE: Final = "pgsub.log"

CONSOLE_ENV: Final = "PGSUB_CONSOLE_FD"
"""Environment variable with the descriptor of the launcher's standard error."""

FORMAT_ENV: Final = "PGSUB_LOG_FORMAT"
"""Environment variable with the format of a worker's first lines, before the worker has read its
settings."""

_OURS: Final = ("subscriber", "workers", "config", "catalog", "__main__")
_FORMATS: Final[dict[LogFormat, Callable[[Line], str]]] = {"text": as_text, "json": as_json}

log = logging.getLogger(__name__)


def setup(name: str, data_dir: Path, *, console: bool = True) -> None:
    """Log as ``name`` from here on; replaces the set-up of an earlier call.

    Without ``console`` lines go to the log file alone. Raises ``IoError`` if the log file cannot be
    opened.
    """
    fd = open_log_file(data_dir)
    console_fd = _console() if console else None
    outputs: list[_Output] = [_LogFile(fd, data_dir)]
    if console_fd is not None and not os.path.samestat(os.fstat(console_fd), os.fstat(fd)):
        outputs.append(_Output(console_fd))
    for old in _handlers():
        logging.getLogger().removeHandler(old)
        old.close()
    handler = _LogHandler(name, outputs, EqualLines(data_dir / LOG_DIRECTORY))
    handler.addFilter(_is_ours)
    logging.getLogger().addHandler(handler)
    use_format("json" if os.environ.get(FORMAT_ENV) == "json" else "text")
    for package in _OURS:
        logging.getLogger(package).setLevel(logging.INFO)


def use_format(form: LogFormat) -> None:
    """Write the lines of this process in a format from here on, and those of its workers."""
    os.environ[FORMAT_ENV] = form
    for handler in _handlers():
        handler.as_line = _FORMATS[form]


def open_log_file(data_dir: Path) -> int:
    """Open the log file for appending; the caller closes the descriptor. 58030 after a failure."""
    folder = data_dir / LOG_DIRECTORY
    path = folder / LOG_FILE
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise IoError(f'could not open log file "{path}": {error.strerror}') from None


def report(error: ReplicationError, *, action: str = "error", **keys: object) -> None:
    """Log an error with the SQLSTATE, and DETAIL, HINT and CONTEXT on separate lines.

    ``keys`` are named values such as ``subid`` and ``relid``.
    """
    named = "".join(f" {key}={value}" for key, value in keys.items())
    fields = {"DETAIL": error.detail, "HINT": error.hint, "CONTEXT": "\n".join(error.context)}
    log.error("action=%s%s sqlstate=%s %s", action, named, error.code, error.primary, extra=fields)


def unexpected(error: Exception) -> ReplicationError:
    """The error itself; an unexpected exception, a bug of pgsub, becomes an XX000.

    The traceback goes to the debug log only: a traceback may quote values.
    """
    if isinstance(error, ReplicationError):
        return error
    log.debug("action=bug", exc_info=error)
    return internal_error(error)


class _Output:
    """Writes a line with one system call: lines of several processes never mix."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, data: bytes) -> None:
        """Write a line; a closed terminal or a full disk must not stop replication."""
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(self._fd, data) :]

    def close(self) -> None:
        """Close a descriptor that belongs to the log alone."""


class _LogHandler(logging.Handler):
    """Writes a record to every output, in the format in force."""

    def __init__(self, name: str, outputs: Sequence[_Output], equal_lines: EqualLines) -> None:
        super().__init__()
        self.as_line: Callable[[Line], str] = as_text
        self._name = name
        self._outputs = outputs
        self._equal_lines = equal_lines

    def emit(self, record: logging.LogRecord) -> None:
        for line in self._equal_lines.admit(line_of(self._name, record)):
            data = (self.as_line(line) + "\n").encode(errors="backslashreplace")
            for output in self._outputs:
                output.write(data)

    def close(self) -> None:
        for output in self._outputs:
            output.close()
        super().close()


class _LogFile(_Output):
    """Writes to the log file of a data directory, and rotates the file."""

    def __init__(self, fd: int, data_dir: Path) -> None:
        super().__init__(fd)
        self._data_dir = data_dir
        self._path = data_dir / LOG_DIRECTORY / LOG_FILE
        self._take_over_standard_error()

    def write(self, data: bytes) -> None:
        """Write a line to the file that has the name now."""
        with contextlib.suppress(OSError, IoError):
            self._follow()
        super().write(data)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def _follow(self) -> None:
        """Rotate a large file; open the file that has the name now."""
        ours = os.fstat(self._fd)
        if ours.st_size >= LOG_FILE_BYTES:
            self._rotate(ours)
        try:
            is_ours = os.path.samestat(ours, os.stat(self._path))
        except FileNotFoundError:
            is_ours = False
        if not is_ours:
            opened = open_log_file(self._data_dir)
            os.dup2(opened, self._fd, inheritable=False)
            os.close(opened)
            self._take_over_standard_error()

    def _rotate(self, ours: os.stat_result) -> None:
        """Rename the log file and the kept files, unless another process does so.

        The lock is not waited for: a frozen process would silence all others.
        """
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            if not os.path.samestat(ours, os.stat(self._path)):
                return
            for number in range(LOG_KEPT_FILES - 1, 0, -1):
                with contextlib.suppress(FileNotFoundError):
                    os.replace(f"{self._path}.{number}", f"{self._path}.{number + 1}")
            os.replace(self._path, f"{self._path}.1")
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _take_over_standard_error(self) -> None:
        """A worker's standard error is the log file, also after a rotation."""
        if os.environ.get(CONSOLE_ENV):
            os.dup2(self._fd, 2)


def _handlers() -> list[_LogHandler]:
    found = logging.getLogger().handlers
    return [handler for handler in found if isinstance(handler, _LogHandler)]


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] in _OURS


def _console() -> int | None:
    """The launcher's standard error: descriptor 2 in the launcher, a named one in a worker."""
    named = os.environ.get(CONSOLE_ENV)
    try:
        fd = int(named) if named else 2
        os.fstat(fd)
    except (ValueError, OSError):
        return None
    return fd
