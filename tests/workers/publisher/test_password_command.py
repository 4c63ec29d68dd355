"""The command that prints a password: run, kept, given up, and never shown."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from catalog.errcodes import AdminShutdown, ConnectionFailure
from catalog.pg_subscription import Subscription
from tests.waiting import wait_until
from workers.publisher import connect, password_command
from workers.publisher.connect import connect_publisher
from workers.publisher.password_command import subscription_password

SECRET = "planted-t0ken"
SUB = Subscription("mysub", "host=db", ("pub",))


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_command, "_kept", {})


def with_command(command: str, ttl: float = 0.0) -> Subscription:
    return replace(SUB, password_command=command, password_command_ttl=ttl)


def counting(tmp_path: Path) -> str:
    """A command that prints another password each time."""
    return f"echo x >> {tmp_path}/runs; echo {SECRET}$(wc -l < {tmp_path}/runs)"


def test_the_output_is_the_password_without_its_line_break() -> None:
    assert subscription_password(with_command(f"printf '{SECRET} \\r\\n'")) == f"{SECRET} "
    assert subscription_password(with_command(f"printf '{SECRET}'")) == SECRET


def test_the_command_runs_before_each_connection(tmp_path: Path) -> None:
    sub = with_command(counting(tmp_path))
    assert [subscription_password(sub) for _ in range(2)] == [f"{SECRET}1", f"{SECRET}2"]


def test_the_output_is_kept_for_the_ttl_and_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    sub = with_command(counting(tmp_path), 60.0)
    found = []
    for at in (1000.0, 1059.0, 1060.0, 1119.0):
        clock[0] = at
        found.append(subscription_password(sub))
    assert found == [f"{SECRET}1", f"{SECRET}1", f"{SECRET}2", f"{SECRET}2"]


@pytest.mark.parametrize(
    ("command", "detail"),
    [
        (f"echo {SECRET}; echo {SECRET} >&2; exit 3", "The command ended with status 3."),
        (f"echo {SECRET}; kill -9 $$", "The command ended with status -9."),
        ("/no/such/command", "The command ended with status 127."),
        ("true", "The output is empty, or has more than one line."),
        (f"echo {SECRET}; echo {SECRET}", "The output is empty, or has more than one line."),
    ],
)
def test_a_failure_is_told_without_any_output(
    command: str,
    detail: str,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ConnectionFailure, match='password_command of subscription "mysub"') as got:
        subscription_password(with_command(command, 60.0))
    assert got.value.detail == detail
    shown = [got.value.report(), caplog.text, *capfd.readouterr()]
    assert not [text for text in shown if SECRET in text]
    assert not password_command._kept


def test_a_command_that_hangs_is_ended_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(password_command, "PASSWORD_COMMAND_SECONDS", 0.3)
    pid = tmp_path / "pid"
    with pytest.raises(ConnectionFailure, match="failed") as caught:
        subscription_password(with_command(f"sleep 600 & echo $! > {pid}; wait"))
    assert "has not ended within" in (caught.value.detail or "")
    wait_until(lambda: not _runs(int(pid.read_text())), 10)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_sigterm_does_not_wait_for_the_command() -> None:
    with pytest.raises(AdminShutdown):
        subscription_password(with_command("exec sleep 600"), lambda: True)


def test_without_a_command_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", SECRET)
    assert subscription_password(replace(SUB, password_env="SHOP_PASSWORD")) == SECRET
    assert subscription_password(replace(SUB, password_env="NOT_SET")) is None
    assert subscription_password(SUB) is None


def test_every_connection_of_a_subscription_takes_the_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def establish(dsn: str, _interrupted: object) -> None:
        asked.append(dsn)
        raise ConnectionFailure("no server")

    monkeypatch.setattr(connect, "_establish", establish)
    with pytest.raises(ConnectionFailure, match="no server"):
        connect_publisher(with_command(f"echo {SECRET}"), "mysub", lambda: False)
    assert f"password={SECRET}" in asked[0]
