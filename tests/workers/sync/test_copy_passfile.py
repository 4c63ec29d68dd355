"""The password file of Spark's copy tasks, while a copy lasts longer than a token lives."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.errcodes import ConnectionFailure
from catalog.pg_subscription import Subscription
from tests.waiting import wait_until
from workers.sync import copy_passfile as module
from workers.sync.copy_passfile import copy_passfile

SUB = Subscription("mysub", "host=db", ("pub",), passfile="/data/passfile/u")
TOKENS = replace(SUB, passfile=None, password_command="print", password_command_ttl=0.02)


def never() -> bool:
    return False


def tokens(monkeypatch: pytest.MonkeyPatch, *found: str | Exception) -> None:
    """What the command prints, run by run; the last again and again."""
    left = list(found)

    def password(_sub: Subscription, _interrupted: Callable[[], bool]) -> str:
        now = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(now, Exception):
            raise now
        return now

    monkeypatch.setattr(module, "subscription_password", password)


def test_a_subscription_s_own_file_is_left_alone(tmp_path: Path) -> None:
    with copy_passfile(SUB, tmp_path / "a" / "b", never) as path:
        assert path == SUB.passfile
    assert not (tmp_path / "a").exists()


def test_the_file_is_private_follows_the_command_and_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens(monkeypatch, "first", "second")
    with copy_passfile(TOKENS, tmp_path / "a" / "b", never) as path:
        file = Path(path or "")
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.read_text() in ("*:*:*:*:first\n", "*:*:*:*:second\n")
        wait_until(lambda: file.read_text() == "*:*:*:*:second\n", 10)
        assert file.stat().st_mode & 0o777 == 0o600
    assert not list((tmp_path / "a" / "b").iterdir())
    assert "password" not in {thread.name for thread in threading.enumerate()}


def test_a_failure_leaves_the_file_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tokens(monkeypatch, "first", ConnectionFailure("password_command failed"), "third")
    with copy_passfile(TOKENS, tmp_path / "a" / "b", never) as path:
        file = Path(path or "")
        wait_until(lambda: file.read_text() == "*:*:*:*:third\n", 10)
    assert caplog.text.count("action=password_command") == 1
    assert "first" not in caplog.text


def test_a_first_failure_is_the_copy_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens(monkeypatch, ConnectionFailure("password_command failed"))
    with (
        pytest.raises(ConnectionFailure),
        copy_passfile(TOKENS, tmp_path / "a" / "b", never),
    ):
        raise AssertionError
