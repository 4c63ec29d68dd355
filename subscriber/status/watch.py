"""``pgsub status --watch``: draws the views again and again, on the terminal."""

from __future__ import annotations

import threading
from collections.abc import Callable

from config.monitor_limits import WATCH_SECONDS


def watch(draw: Callable[[], str], stop: threading.Event | None = None) -> None:
    """Print ``draw()`` again and again until Ctrl-C, on a terminal always in the same place."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console()
    stop = stop or threading.Event()
    try:
        if console.is_terminal:
            with Live(console=console, auto_refresh=False, screen=True) as live:
                while True:
                    live.update(Text(draw(), overflow="fold"), refresh=True)
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
