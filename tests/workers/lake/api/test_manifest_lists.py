"""Lists of manifests are read ahead, by threads that nothing waits for."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from config.limits import LOADED_AT_ONCE_TABLES
from config.monitor_limits import MANIFEST_LIST_THREADS
from workers.lake.api.manifest_lists import ManifestLists


def snapshot(read: Any) -> Any:
    return SimpleNamespace(allManifests=read)


def test_the_list_of_a_snapshot_is_read() -> None:
    lists, done, seen = ManifestLists(), threading.Event(), list[str]()

    def read(io: str) -> None:
        seen.append(io)
        done.set()

    lists.read(snapshot(read), "io")
    assert done.wait(30)
    assert seen == ["io"]


def test_a_failure_is_left_to_the_commit() -> None:
    lists, done = ManifestLists(), threading.Event()

    def fail(_io: str) -> None:
        raise Py4JNetworkError("gone")

    for _ in range(3 * MANIFEST_LIST_THREADS):
        lists.read(snapshot(fail), "io")
    lists.read(snapshot(lambda _io: done.set()), "io")
    assert done.wait(30)


def test_nobody_waits_for_a_server_that_stands_still() -> None:
    """And the lists that wait are bounded."""
    lists, frozen = ManifestLists(), threading.Event()
    for _ in range(2 * LOADED_AT_ONCE_TABLES):
        lists.read(snapshot(lambda _io: frozen.wait(30)), "io")
    assert lists._asked.full()
    assert all(each.daemon for each in lists._threads)
    assert len(lists._threads) == MANIFEST_LIST_THREADS
    frozen.set()


def test_a_worker_without_a_further_thread_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        lists, done = ManifestLists(), threading.Event()
        lists.read(snapshot(lambda _io: done.set()), "io")
        assert not lists._threads
    lists.read(snapshot(lambda _io: done.set()), "io")
    assert done.wait(30)
