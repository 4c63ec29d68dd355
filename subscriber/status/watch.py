"""`pgsub status --watch`: the views again and again, on the terminal."""

from __future__ import annotations

import threading
from collections.abc import Callable

from catalog.store_sqlite import CatalogStore
from config.limits import WATCH_SECONDS
from subscriber.printing import as_text_table
from subscriber.status.views import (
    OVERVIEW,
    VIEWS,
    Workers,
    _lake_maintenance,
    _last_errors,
    _spools,
    _told,
    _told_of_pause,
    _told_of_upkeep,
)

# Showing them


def overview(store: CatalogStore, workers: Workers) -> str:
    """Several views one after the other, each under its name."""
    names = [*OVERVIEW, *(["leaked_slots"] if store.leaked_slots() else [])]
    tables = []
    for name in names:
        shown = VIEWS[name]
        tables.append(f"{name}\n{as_text_table(shown.columns, shown.rows(store, workers))}")
    tables += [_told_of_pause(row) for row in _spools(store, workers) if row["paused_since"]]
    upkeep = _lake_maintenance(store, workers)
    tables += [_told_of_upkeep(row) for row in upkeep if row["upkeep_error"]]
    tables += [_told(row) for row in _last_errors(store, workers)]
    return "\n".join(tables)


def watch(draw: Callable[[], str], stop: threading.Event | None = None) -> None:
    """Show ``draw()`` again and again until Ctrl-C; on a terminal in one place."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console()
    stop = stop or threading.Event()
    try:
        if console.is_terminal:
            with Live(console=console, auto_refresh=False, screen=True) as live:
                while True:
                    live.update(Text(draw(), no_wrap=True, overflow="ellipsis"), refresh=True)
                    if stop.wait(WATCH_SECONDS):
                        return
        last = ""
        while True:
            text = draw()
            if text != last:
                print(text, flush=True)
                last = text
            if stop.wait(WATCH_SECONDS):
                return
    except KeyboardInterrupt:
        return
