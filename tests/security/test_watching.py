"""The tools with which ``test_secrets`` listens: they hear what there is to hear."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.security.argument_watch import ArgumentWatch
from tests.security.launcher_tap import LauncherTap
from tests.waiting import wait_until
from workers.process.launcher_socket import (
    LOCK_FILE,
    LineReader,
    LockInfo,
    ask,
    encode,
    make_socket_path,
)

WORD = "planted4d81word"


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Path]:
    """A data directory whose launcher answers each request with the request."""
    path = make_socket_path(tmp_path)
    (tmp_path / LOCK_FILE).write_bytes(LockInfo.own(path, 1).to_json())
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=echo, args=(listener,), daemon=True)
        thread.start()
        yield tmp_path
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def echo(listener: socket.socket) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        reader = LineReader()
        with client:
            while data := client.recv(1000):
                for message in reader.feed(data):
                    client.sendall(encode({"id": message["id"], "said": message["word"]}))


def test_the_tap_hears_both_ways_and_changes_nothing(launcher: Path) -> None:
    long = WORD * 50_000
    with LauncherTap(launcher) as tap:
        assert tap.path.stat().st_mode & 0o777 == 0o600
        for word in (WORD, long):
            answer = ask(launcher, {"op": "say", "word": word}, 10)
            assert answer == {"id": 1, "said": word}
    said = tap.messages()
    assert sorted(len(message.get("said", "")) for message in said) == [0, 0, len(WORD), len(long)]
    assert [message["word"] for message in said if "op" in message] == [WORD, long]
    assert all(WORD.encode() in stream for stream in tap.streams)


def test_who_comes_when_the_launcher_is_gone_is_hung_up_on(launcher: Path) -> None:
    with LauncherTap(launcher) as tap:
        tap.behind.unlink()
        assert ask(launcher, {"op": "say", "word": WORD}, 10) is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_the_watch_sees_a_word_that_passes_by() -> None:
    def child(*words: str) -> subprocess.Popen[bytes]:
        code = "import sys; sys.stdin.read()"
        return subprocess.Popen([sys.executable, "-c", code, *words], stdin=subprocess.PIPE)

    with ArgumentWatch([WORD]) as watch:
        quiet = child("nothing")
        wait_until(lambda: quiet.pid in watch.below(os.getpid(), "nothing"))
        assert watch.told == []
        loud = child(f"--password={WORD}")
        wait_until(lambda: watch.told)
        assert watch.alive
        quiet.communicate()
        loud.communicate()
    assert len(watch.told) == 1
    assert watch.told[0].rstrip().endswith(f"--password={WORD}")
    assert {quiet.pid, loud.pid} <= watch.below(os.getpid())
    assert loud.pid not in watch.below(os.getpid(), "nothing")
    assert quiet.pid not in watch.below(loud.pid)
