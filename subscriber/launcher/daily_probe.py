"""Probe the lake's catalog once a day: a catalog that is upgraded or replaced may break a promise.

CREATE, ``check`` and the start of ``up`` probe the catalog, with the help of
``workers.lake.iceberg.catalog_probe``. A launcher runs for months. So a short-lived process probes
again a day after the start, and a day after each probe. A catalog that breaks a promise would lose
rows without an error: the launcher ends as at its start, with the error in the log, and the workers
finish the batch in hand before. The same goes for a commit service and a Spark server that no
longer have one catalog: a fence in one would not stop a commit in the other. A catalog or a store
that is away says nothing about its promises: the workers wait for it, and the next day is soon
enough.

The default catalog, a SQLite file of the data directory, is not probed: its promises are tested.

A trace::

    0     up: probed by the command that applies the file
    24 h  forked: the probe passes
    48 h  the catalog is away            status 1: nothing happens
    72 h  the catalog takes stale commits   status 2: the launcher ends with 0A000
          or two servers have two catalogs  status 2: the launcher ends with 55000
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from catalog.errcodes import FeatureNotSupported, InternalError, ReplicationError, TwoLakes
from config.monitor_limits import CATALOG_PROBE_SECONDS
from subscriber.status.lake_tables import ForkedProcess
from workers.process import log as server_log

log = logging.getLogger(__name__)

REFUSED: Final = 2
"""The exit status of a process whose catalog broke a promise, or found two catalogs."""
FILE_NAME: Final = "daily_probe"
"""The file of the data directory with the name of the scratch table, while there is one."""


class DailyProbe:
    """Decides when the launcher has the catalog probed; the launcher's loop calls ``poll``.

    ``start`` forks a process with the given arguments; None for a catalog that is not probed.
    """

    def __init__(self, start: Callable[[list[str]], ForkedProcess] | None, now: float) -> None:
        self._start = start
        self._last = now
        self._process: ForkedProcess | None = None

    def poll(self, now: float, url: str | None) -> bool:
        """Note the end of a process, or start one; True if the catalog broke a promise."""
        if self._process is not None:
            status = self._process.poll()
            if status is None:
                return False
            self._process = None
            return status == REFUSED
        if self._start is not None and now - self._last >= CATALOG_PROBE_SECONDS:
            self._last = now
            if url is not None:
                try:
                    self._process = self._start([url])
                except OSError as error:
                    log.warning("action=daily_probe could not fork: %s", error.strerror)
        return False

    def next_deadline(self) -> float | None:
        """When the next ``poll`` is due; the end of a process wakes the loop anyway."""
        waits = self._start is not None and self._process is None
        return self._last + CATALOG_PROBE_SECONDS if waits else None

    def stop(self) -> None:
        """Kill a running process; the next probe drops its scratch table."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def main(argv: Sequence[str]) -> int:
    """Run in the forked process: data directory, URL. ``REFUSED`` if the catalog is unfit."""
    data_dir, url = Path(argv[0]), argv[1]
    server_log.setup("catalog probe", data_dir)
    try:
        _probe(data_dir / FILE_NAME, url)
    except (FeatureNotSupported, TwoLakes) as error:
        server_log.report(error, action="daily_probe")
        return REFUSED
    except ReplicationError as error:
        log.warning("action=daily_probe could not probe the lake's catalog: %s", error.primary)
        return 1
    except Exception as error:
        what = f"unexpected {type(error).__name__} while probing the lake's catalog"
        server_log.report(InternalError(what), action="daily_probe")
        return 1
    return 0


def _probe(note: Path, url: str) -> None:
    """Probe with a scratch table whose name is noted, so that a killed probe leaves no table."""
    from workers.lake.iceberg.catalog_probe import new_name, probe_catalog

    left = note.read_text(encoding="utf-8") if note.exists() else ""
    name = new_name()
    with os.fdopen(os.open(note, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(name)
    probe_catalog(url, name, left or None)
    note.unlink()
