"""The process that draws the terminal of ``pgsub up`` and ``pgsub run``.

The launcher starts the process, and keeps the terminal's signals to itself: this process ignores
Ctrl-C, and ends when the launcher closes its standard input. Lines that come there, such as NOTICEs
of CREATE, are printed above the display.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from catalog.errcodes import ReplicationError
from catalog.store_sqlite import CatalogStore
from config.monitor_limits import LIVE_SECONDS
from subscriber.status.live_reading import Rates, Reading, read
from subscriber.status.live_view import draw
from subscriber.status.views import VIEWS
from workers.parent_death import die_with_parent
from workers.process.launcher_client import query_launcher

_VIEWS = ("pg_subscription", "pg_subscription_rel", "pg_stat_progress_copy", "last_errors")


def main() -> None:
    """Draw until standard input ends; ``sys.argv[1]`` is the data directory."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    die_with_parent()
    show(Path(sys.argv[1]), Console(), sys.stdin)


def show(data_dir: Path, console: Console, lines: Iterable[str]) -> None:
    """Draw readings in place, and print each of the lines above, until the lines end."""
    ended = threading.Event()
    with (
        contextlib.closing(Reader(data_dir)) as reader,
        Live(console=console, auto_refresh=False, transient=False) as live,
    ):
        thread = threading.Thread(target=_print, args=(lines, console, ended), daemon=True)
        thread.start()
        while True:
            live.update(draw(reader.read(), console), refresh=True)
            if ended.wait(LIVE_SECONDS):
                return


def _print(lines: Iterable[str], console: Console, ended: threading.Event) -> None:
    try:
        for line in lines:
            console.print(Text(line.rstrip("\n")), soft_wrap=True)
    finally:
        ended.set()


class Reader:
    """Takes readings of a data directory; the catalog is opened once a launcher has made it."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._rates = Rates()
        self._store: CatalogStore | None = None

    def read(self) -> Reading:
        """The present reading; a phase alone while launcher or catalog give no answer."""
        try:
            status = query_launcher(self._data_dir, LIVE_SECONDS)
            if status is None:
                return Reading("starting")
            if self._store is None:
                self._store = CatalogStore.open(self._data_dir, must_exist=True)
            rows = {name: VIEWS[name].rows(self._store, status.workers) for name in _VIEWS}
            return read(status, rows, self._rates, time.time())
        except (ReplicationError, OSError) as error:
            code = error.code if isinstance(error, ReplicationError) else type(error).__name__
            return Reading(f"gives no answer ({code})")

    def close(self) -> None:
        """Close the catalog."""
        if self._store is not None:
            self._store.close()
