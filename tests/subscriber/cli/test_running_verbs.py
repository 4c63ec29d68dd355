"""The verbs that run until a signal ends them."""

from __future__ import annotations

from pathlib import Path

import pytest

from subscriber.launcher import launcher
from tests.shell import Ran, Shell


def test_run_ends_with_the_status_of_the_launcher(
    pgsub: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Path] = []

    def main(data_dir: Path) -> int:
        started.append(data_dir)
        return 7

    monkeypatch.setattr(launcher, "ApplyLauncherMain", main)
    assert pgsub("run") == Ran(7, "", "")
    assert started == [pgsub.data_dir]
