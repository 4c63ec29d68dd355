"""Lists of manifests are read ahead, by threads that nothing waits for."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from py4j.protocol import Py4JNetworkError

from config.monitor_limits import MANIFEST_LIST_THREADS
from workers.lake.api.manifest_lists import ManifestLists


class Table:
    """Iceberg's object of a table with snapshot 5; ``read`` is what reads the list."""

    def __init__(self, read: Any) -> None:
        self.read = read

    def operations(self) -> Any:
        found = {5: SimpleNamespace(allManifests=self.read)}
        return SimpleNamespace(current=lambda: SimpleNamespace(snapshot=found.get))

    def io(self) -> str:
        return "io"


def test_the_list_of_the_known_state_is_read() -> None:
    lists, done, seen = ManifestLists(), threading.Event(), list[str]()

    def read(io: str) -> None:
        seen.append(io)
        done.set()

    lists.read(Table(seen.append), 4)  # the state has no such snapshot
    lists.read(Table(read), 5)
    assert done.wait(30)
    assert seen == ["io"]


def test_a_failure_is_left_to_the_commit() -> None:
    lists, done = ManifestLists(), threading.Event()

    def fail(_io: str) -> None:
        raise Py4JNetworkError("gone")

    for _ in range(3 * MANIFEST_LIST_THREADS):
        lists.read(Table(fail), 5)
    lists.read(Table(lambda _io: done.set()), 5)
    assert done.wait(30)


def test_nobody_waits_for_a_server_that_stands_still() -> None:
    lists, frozen = ManifestLists(), threading.Event()
    for _ in range(2 * MANIFEST_LIST_THREADS):
        lists.read(Table(lambda _io: frozen.wait(30)), 5)
    names = [each for each in threading.enumerate() if each.name == "manifest list"]
    assert len(names) >= MANIFEST_LIST_THREADS
    assert all(each.daemon for each in names)
    frozen.set()
