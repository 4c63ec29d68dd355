"""Has a launcher that was started on a terminal show tables instead of the log.

The display is a process of its own (``subscriber.status.live``). The launcher stays the process
that the shell knows: signals and the exit status are the launcher's. What the launcher prints to
its standard error goes through a pipe to the display, and is printed above the tables. A thread
reads the pipe, so that a display that died stops nothing: its lines go to the terminal then.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from config.monitor_limits import LIVE_END_SECONDS, LOG_END_LINES
from workers.process.log import LOG_DIRECTORY, LOG_FILE

_DISPLAY = "from subscriber.status.live import main; main()"


def print_log_end(data_dir: Path) -> None:
    """Print the last lines of the log: an error that ended the launcher is among them."""
    path = data_dir / LOG_DIRECTORY / LOG_FILE
    with suppress(OSError), path.open(encoding="utf-8", errors="replace") as log:
        lines = deque(log, maxlen=LOG_END_LINES)
        print(f"The log, {path}, ends:\n{''.join(lines)}", end="", file=sys.stderr, flush=True)


def has_terminal() -> bool:
    """Do standard output and standard error lead to a terminal?"""
    return os.isatty(1) and os.isatty(2)


@contextmanager
def tables_on_terminal(data_dir: Path) -> Iterator[None]:
    """Show tables until the end of the body; then standard error is the terminal again.

    Call from the main thread.
    """
    terminal = os.dup(2)
    read_end, write_end = os.pipe()
    # A child inherits an ignored signal: Ctrl-C does not end the display while it is starting.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        display = subprocess.Popen(
            [sys.executable, "-P", "-c", _DISPLAY, str(data_dir)],
            stdin=subprocess.PIPE,
            stderr=terminal,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    thread = threading.Thread(target=_pass_on, args=(read_end, display, terminal), daemon=True)
    os.dup2(write_end, 2)
    os.close(write_end)
    thread.start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(terminal, 2)
        thread.join(LIVE_END_SECONDS)
        _end(display)
        os.close(terminal)


def _pass_on(read_end: int, display: subprocess.Popen[bytes], terminal: int) -> None:
    """Pass on each line to the display, or to the terminal once there is no display."""
    target = display.stdin
    with os.fdopen(read_end, "rb") as pipe:
        for line in pipe:
            try:
                if target is not None:
                    target.write(line)
                    target.flush()
                    continue
            except OSError:
                target = None
            with suppress(OSError):
                os.write(terminal, line)


def _end(display: subprocess.Popen[bytes]) -> None:
    """The display draws a last time and ends when its standard input ends."""
    with suppress(OSError):
        if display.stdin is not None:
            display.stdin.close()
    try:
        display.wait(LIVE_END_SECONDS)
    except subprocess.TimeoutExpired:
        display.kill()
        display.wait()
