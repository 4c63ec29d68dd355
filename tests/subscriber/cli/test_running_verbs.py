"""The verbs that run until a signal ends them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pytest

from subscriber.launcher import launcher
from tests.shell import Ran, Shell


def test_run_ends_with_the_status_of_the_launcher(
    pgsub: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Path] = []

    def main(data_dir: Path, *, console: bool, look_module: str) -> int:
        assert console, "there is no terminal"
        assert import_module(look_module).main
        started.append(data_dir)
        return 7

    monkeypatch.setattr(launcher, "ApplyLauncherMain", main)
    assert pgsub("run") == Ran(7, "", "")
    assert started == [pgsub.data_dir]


@pytest.mark.parametrize(
    ("words", "terminal", "shown"),
    [(["run"], True, True), (["run", "--log"], True, False), (["run"], False, False)],
)
def test_a_terminal_gets_tables_unless_the_log_is_wanted(
    pgsub: Shell, monkeypatch: pytest.MonkeyPatch, words: list[str], terminal: bool, shown: bool
) -> None:
    displays: list[Path] = []

    @contextmanager
    def tables(data_dir: Path) -> Iterator[None]:
        displays.append(data_dir)
        yield

    def main(_data_dir: Path, *, console: bool, look_module: str) -> int:
        assert look_module
        assert console is not shown
        return 0

    monkeypatch.setattr(launcher, "ApplyLauncherMain", main)
    monkeypatch.setattr("subscriber.cli.terminal.has_terminal", lambda: terminal)
    monkeypatch.setattr("subscriber.cli.terminal.tables_on_terminal", tables)
    assert pgsub(*words).status == 0
    assert displays == ([pgsub.data_dir] if shown else [])
