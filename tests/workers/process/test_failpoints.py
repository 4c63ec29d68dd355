"""A failpoint acts once, in the process that reaches it, as the file says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from catalog.errcodes import ConnectionFailure
from tests.waiting import wait_until
from workers.process import failpoints

NAME = "apply.batch_taken"


def test_nothing_happens_without_a_file(tmp_path: Path) -> None:
    (tmp_path / "apply.fenced").write_text("raise")
    failpoints._armed(tmp_path)(NAME)
    assert [file.name for file in tmp_path.iterdir()] == ["apply.fenced"]


def test_a_raise_is_a_broken_connection_once(tmp_path: Path) -> None:
    reach = failpoints._armed(tmp_path)
    (tmp_path / NAME).write_text("raise")
    with pytest.raises(ConnectionFailure, match=NAME):
        reach(NAME)
    reach(NAME)
    assert [file.name for file in tmp_path.iterdir()] == [f"{NAME}.{os.getpid()}"]


def test_a_delay_takes_as_many_seconds_as_the_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("workers.process.failpoints.time.sleep", slept.append)
    (tmp_path / NAME).write_text("delay 2.5")
    failpoints._armed(tmp_path)(NAME)
    assert slept == [2.5]


def test_an_empty_file_holds_the_process_until_the_file_is_gone(tmp_path: Path) -> None:
    (tmp_path / NAME).touch()
    reached = threading.Thread(target=failpoints._armed(tmp_path), args=(NAME,), daemon=True)
    reached.start()
    mine = tmp_path / f"{NAME}.{os.getpid()}"
    wait_until(mine.exists, 10)
    reached.join(0.2)
    assert reached.is_alive()
    mine.unlink()
    reached.join(10)
    assert not reached.is_alive()


@pytest.mark.parametrize("armed", [True, False])
def test_the_environment_arms_the_failpoints_of_a_process(tmp_path: Path, armed: bool) -> None:
    (tmp_path / NAME).write_text("kill")
    environment = {**os.environ, failpoints.ENVIRONMENT: str(tmp_path) if armed else ""}
    code = f"from workers.process.failpoints import reach; reach({NAME!r})"
    ended = subprocess.run([sys.executable, "-c", code], env=environment, check=False, timeout=60)
    assert ended.returncode == (-signal.SIGKILL if armed else 0)
    assert (tmp_path / NAME).exists() is not armed


def test_a_failpoint_has_one_name_and_one_list() -> None:
    names = [
        name
        for each, names in vars(failpoints).items()
        if each.isupper() and isinstance(names, tuple)
        for name in names
    ]
    assert len(names) > 40
    assert len(set(names)) == len(names)
