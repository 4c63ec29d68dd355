"""``pgsub up`` on a terminal, as a service manager's child: what the two are shown and told.

One family plays the scenario: a copy, a stream, and a password command that breaks for a while.
"""

from __future__ import annotations

import os
import pty
import re
import socket
import subprocess
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fix_publisher import Database
from tests.harness import COMMAND, SETTINGS, Pgsub
from tests.subscriber.launcher.test_service_manager import heard
from tests.waiting import wait_until

WIDTH, HEIGHT = 60, 30
PASSWORD = "planted-t0ken"


class Terminal:
    """A window of 60 columns; a thread keeps what programs print there."""

    def __init__(self) -> None:
        self._ours, self.theirs = pty.openpty()
        termios.tcsetwinsize(self.theirs, (HEIGHT, WIDTH))
        self._got = b""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        try:
            while data := os.read(self._ours, 65536):
                self._got += data
        except OSError:  # the last process has closed the terminal
            return

    def printed(self) -> str:
        """All that was printed, without the terminal's own commands."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", self._got.decode(errors="replace"))

    def picture(self) -> str:
        """The last tables that were drawn, with each line break and frame a space."""
        return " ".join(re.sub(r"[^!-~]", " ", self.printed().rpartition("pgsub ")[2]).split())

    def close(self) -> None:
        """To be called when no program uses the terminal any more."""
        os.close(self.theirs)
        self._reader.join(60)
        os.close(self._ours)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket of a service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(tmp_path / "notify"))
        made.setblocking(False)
        yield made


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port on which another program listens."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


@pytest.fixture
def family(tmp_path: Path, terminal: Terminal, manager: socket.socket) -> Iterator[Pgsub]:
    told = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "1000000"}
    made = Pgsub(tmp_path / "data", env={**told, "TERM": "xterm"})
    yield made
    made.stop()


@pytest.mark.postgres
@pytest.mark.spark
def test_a_copy_an_error_with_its_remedy_and_the_end(
    family: Pgsub,
    database: Database,
    terminal: Terminal,
    manager: socket.socket,
    taken_port: int,
) -> None:
    token = family.scratch / "token"
    token.write_text(PASSWORD)
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "CREATE PUBLICATION p FOR TABLE t",
        "INSERT INTO t SELECT n, 'x' FROM generate_series(1, 1000) n",
    )
    entry = {"connection": database.dsn, "publication": "p", "password_command": f"cat {token}"}
    settings = {**SETTINGS, "metrics_listen": taken_port}
    file = family.file({"subscriptions": {"shown": entry}, "settings": settings})
    told: list[str] = []

    def has(text: str) -> bool:
        told.extend(heard(manager))
        return any(text in each for each in told)

    family.start("up", str(file), terminal=terminal.theirs)
    wait_until(lambda: "r follows the stream" in terminal.picture(), 120, terminal.printed)
    picture = terminal.picture()
    assert picture.startswith("running shown ")
    assert re.search(r"rows/s applied, lag 0 bytes, 0.0 s .*public.t", picture)
    assert 'NOTICE:  created replication slot "shown"' in terminal.printed()
    taken = f'WARNING:  could not bind metrics address "127.0.0.1", port {taken_port}: '
    assert f"{taken}Address already in use" in terminal.printed()
    assert "HINT:  Name another address with metrics_listen" in terminal.printed()
    wait_until(lambda: has("READY=1") and has("STATUS=tables: 1 r; lag 0.0 s"), 30, lambda: told)
    wait_until(lambda: told.count("WATCHDOG=1") >= 2 or has("nothing"), 30, lambda: told)

    token.unlink()
    family.kill_worker("shown")
    wait_until(lambda: "HINT:" in terminal.picture(), 60, terminal.printed)
    wanted = (
        'ERROR: 08006: subscription "shown": password_command of subscription "shown" failed '
        "DETAIL: The command ended with status 1. HINT: Run the command as the user of pgsub"
    )
    assert wanted in terminal.picture()
    wait_until(lambda: has("errors 08006, see pgsub status"), 30, lambda: told)
    token.write_text(PASSWORD)
    wait_until(lambda: "ERROR" not in terminal.picture(), 60, terminal.printed)

    _views_fold_to_the_window(family, terminal)
    assert family.stop() == 0
    assert has("STOPPING=1")
    printed, log = terminal.printed(), (family.data_dir / "log" / "pgsub.log").read_text()
    assert "action=ready" in log
    assert "action=" not in printed, "the log goes to its file"
    assert PASSWORD not in printed + log + str(told)


def _views_fold_to_the_window(family: Pgsub, terminal: Terminal) -> None:
    """On a terminal of its own: nothing is cut off, and no line is wider than the window."""
    own = Terminal()
    words = [str(COMMAND), "--data-dir", str(family.data_dir), "status", "pg_stat_subscription"]
    subprocess.run(words, stdin=own.theirs, stdout=own.theirs, stderr=own.theirs, check=True)
    own.close()
    lines = own.printed().splitlines()
    assert lines[0].startswith("-[ RECORD 1 ]-")
    assert max(map(len, lines)) <= WIDTH
    (row,) = family.status("pg_stat_subscription")
    assert [line.split()[0] for line in lines[1:-1] if line[0] != " "] == list(row)
