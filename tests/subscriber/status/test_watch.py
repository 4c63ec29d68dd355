"""``pgsub status --watch``."""

from __future__ import annotations

import threading

import pytest

from subscriber.status import watch


def test_watch_prints_changes_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watch, "WATCH_SECONDS", 0.0)
    stop = threading.Event()
    texts = ["one", "one", "two"]

    def draw() -> str:
        text = texts.pop(0)
        if not texts:
            stop.set()
        return text

    watch.watch(draw, stop)
    assert capsys.readouterr().out == "one\ntwo\n"


def test_watch_ends_with_ctrl_c() -> None:
    def draw() -> str:
        raise KeyboardInterrupt

    watch.watch(draw)
