"""The process that draws: lines above, a last picture at the end, and no launcher."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from catalog.errcodes import ConnectionFailure
from subscriber.status import live
from subscriber.status.live_reading import Reading


def test_lines_are_printed_above_and_their_end_ends_the_display(tmp_path: Path) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, height=20)
    live.show(tmp_path, console, ["NOTICE:  created\n", "WARNING:  [bold]\n"])
    shown = out.getvalue()
    assert "NOTICE:  created" in shown
    assert "WARNING:  [bold]" in shown, "a line is no markup"
    assert "pgsub starting" in shown


def test_a_launcher_that_gives_no_answer_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = live.Reader(tmp_path)
    assert reader.read() == Reading("starting")

    def silent(*_given: object) -> None:
        raise ConnectionFailure("no answer")

    monkeypatch.setattr(live, "query_launcher", silent)
    assert reader.read() == Reading("gives no answer (08006)")
