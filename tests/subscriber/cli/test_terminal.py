"""A launcher on a terminal: tables there, what it prints above them, the log in its file."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from subscriber.cli.terminal import print_log_end
from workers.process.log import LOG_DIRECTORY, LOG_FILE

LAUNCHER = """
import sys
from pathlib import Path
from subscriber.cli.terminal import has_terminal, tables_on_terminal
assert has_terminal()
with tables_on_terminal(Path(sys.argv[1])):
    print("NOTICE:  created slot", file=sys.stderr, flush=True)
    {body}
print("ended", file=sys.stderr, flush=True)
"""


def on_a_terminal(tmp_path: Path, body: str) -> tuple[int, str]:
    """Run the body as a launcher on a terminal; the status, and all that the terminal got."""
    ours, theirs = pty.openpty()
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER.format(body=body), str(tmp_path)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    got: list[bytes] = []

    def read() -> None:
        try:
            while data := os.read(ours, 65536):
                got.append(data)
        except OSError:  # the last process has closed the terminal
            return

    reader = threading.Thread(target=read)
    reader.start()
    status = launcher.wait(60)
    reader.join(60)
    os.close(ours)
    return status, b"".join(got).decode()


def test_what_the_launcher_prints_is_above_the_tables(tmp_path: Path) -> None:
    status, shown = on_a_terminal(tmp_path, "pass")
    assert status == 0
    assert "NOTICE:  created slot" in shown
    assert "pgsub starting" in shown
    assert shown.rstrip().endswith("ended"), "standard error is the terminal again"
    assert "Traceback" not in shown


def test_a_display_that_died_stops_nothing(tmp_path: Path) -> None:
    body = (
        "import os, signal, psutil\\n"
        "    [display] = psutil.Process().children()\\n"
        "    display.kill(); display.wait()\\n"
        "    [print(f'line {n}', file=sys.stderr, flush=True) for n in range(1000)]"
    ).replace("\\n", "\n")
    status, shown = on_a_terminal(tmp_path, body)
    assert status == 0
    assert "line 999" in shown
    assert re.search(r"ended\s*$", shown)


def test_ctrl_c_is_the_launcher_s(tmp_path: Path) -> None:
    body = (
        "import os, signal\n"
        "    signal.signal(signal.SIGINT, lambda *_: print('stopping', file=sys.stderr))\n"
        f"    os.killpg(0, {int(signal.SIGINT)})"
    )
    status, shown = on_a_terminal(tmp_path, body)
    assert status == 0
    assert "stopping" in shown
    assert "KeyboardInterrupt" not in shown


def test_the_end_of_the_log_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_log_end(tmp_path)
    assert capsys.readouterr().err == ""
    log = tmp_path / LOG_DIRECTORY / LOG_FILE
    log.parent.mkdir()
    log.write_text("".join(f"line {n}\n" for n in range(100)))
    print_log_end(tmp_path)
    shown = capsys.readouterr().err.splitlines()
    assert shown[0] == f"The log, {log}, ends:"
    assert shown[-1] == "line 99"
    assert "line 1" not in shown
