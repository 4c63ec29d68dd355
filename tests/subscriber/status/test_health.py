"""Alive and ready: what each asks, and what it does not."""

from __future__ import annotations

import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.errcodes import ConnectionFailure, IoError
from catalog.last_error import LastError
from catalog.store_sqlite import CatalogStore
from subscriber.status import health
from subscriber.status.health import accepts_connections, liveness, readiness
from tests.subscriber.status.scraped import SECRET, busy
from workers.process.launcher_client import LauncherStatus

READY = LauncherStatus(5, 0, "running", "sc://localhost:1", 6, ())


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> list[LauncherStatus | Exception | None]:
    """What the launcher answers: the last of the list."""
    answers: list[LauncherStatus | Exception | None] = [READY]

    def ask(_: Path, timeout: float) -> LauncherStatus | None:
        assert timeout <= 5
        if isinstance(answers[-1], Exception):
            raise answers[-1]
        return answers[-1]

    monkeypatch.setattr(health, "query_launcher", ask)
    return answers


def ready(store: CatalogStore, *, lake: bool = True) -> tuple[bool, str]:
    found = readiness(Path("d"), store, lambda _: lake)
    return found.ok, found.report()


def test_a_launcher_that_answers_is_alive_whatever_else_is_down(
    answer: list[LauncherStatus | Exception | None], store: CatalogStore
) -> None:
    busy(store)
    answer.append(replace(READY, phase="starting", lake_url=None))
    assert liveness(Path("d")).ok
    assert liveness(Path("d")).report() == "[+]launcher answers, PID 5\nlivez check passed\n"
    assert liveness(Path("d")).report(verbose=False) == "ok\n"


@pytest.mark.parametrize(
    ("last", "text"),
    [
        (None, "[-]launcher is not running on this data directory"),
        (ConnectionFailure("no answer"), "[-]launcher does not answer: SQLSTATE 08006"),
    ],
)
def test_a_launcher_that_is_gone_or_hangs_is_not_alive(
    answer: list[LauncherStatus | Exception | None],
    store: CatalogStore,
    last: Exception | None,
    text: str,
) -> None:
    answer.append(last)
    for found in (liveness(Path("d")), readiness(Path("d"), store)):
        assert not found.ok
        assert found.report(verbose=False).splitlines()[0] == text


def test_ready_needs_the_phase_and_the_lake(
    answer: list[LauncherStatus | Exception | None], store: CatalogStore
) -> None:
    assert ready(store)[0]
    ok, text = ready(store, lake=False)
    assert not ok
    assert "[-]lake server is silent" in text
    answer.append(replace(READY, lake_url=None))
    assert "[-]lake server is not running" in ready(store)[1]
    answer.append(replace(READY, phase="starting"))
    ok, text = ready(store)
    assert not ok
    assert "[-]phase is starting" in text
    assert text.endswith("readyz check failed\n")


def test_an_enabled_subscription_has_a_worker_or_says_why_not(
    answer: list[LauncherStatus | Exception | None], store: CatalogStore
) -> None:
    apply, _ = busy(store)
    ok, text = ready(store)
    assert ok
    assert '[+]subscription "mysub" has no apply worker: SQLSTATE 22003, see pgsub status' in text
    assert SECRET not in text
    store.forget_last_error(apply.subid, 0)
    ok, text = ready(store)
    assert not ok
    assert '[-]subscription "mysub" has no apply worker, and no error says why' in text
    answer.append(replace(READY, workers=(apply,)))
    ok, text = ready(store)
    assert ok
    assert '[+]subscription "mysub" has an apply worker, PID 77\n' in text
    answer.append(replace(READY, workers=(replace(apply, attached=False),)))
    assert not ready(store)[0]
    store.update_subscription(apply.subid, subenabled=False)
    ok, text = ready(store)
    assert ok
    assert "mysub" not in text


def test_a_table_s_error_is_not_the_subscription_s(
    answer: list[LauncherStatus | Exception | None], store: CatalogStore
) -> None:
    apply, sync = busy(store)
    store.forget_last_error(apply.subid, 0)
    store.put_last_error(LastError(apply.subid, sync.relid, 1, "42501", "permission", "", ""))
    assert not ready(store)[0]


def test_a_catalog_that_cannot_be_read_is_not_ready(
    answer: list[LauncherStatus | Exception | None],
    store: CatalogStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise IoError("could not use the catalog")

    monkeypatch.setattr(store, "last_errors", fail)
    ok, text = ready(store)
    assert not ok
    assert "[-]catalog cannot be read: SQLSTATE 58030" in text


def test_whether_a_server_accepts_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        url = f"sc://127.0.0.1:{port}/;token=x"
        taken = threading.Thread(target=lambda: server.accept()[0].close())
        taken.start()
        assert accepts_connections(url)
        taken.join()
    assert not accepts_connections(url)
    assert not accepts_connections("sc://127.0.0.1:99999999")
