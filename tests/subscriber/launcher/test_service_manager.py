"""What a service manager hears, on a socket of the test's own."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.store_sqlite import CatalogStore
from subscriber.launcher.service_manager import ServiceManager, State, service_state
from tests.subscriber.launcher_family import Family
from tests.subscriber.status.scraped import NOW, SECRET, busy
from tests.waiting import wait_until


@pytest.fixture
def sock(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(tmp_path / "notify"))
        made.setblocking(False)
        yield made


@pytest.fixture
def store() -> Iterator[CatalogStore]:
    made = CatalogStore.open(":memory:")
    yield made
    made.close()


def heard(sock: socket.socket) -> list[str]:
    """The messages that have arrived."""
    found = []
    while True:
        try:
            found.append(sock.recv(4096).decode())
        except BlockingIOError:
            return found


def read_until(ended: threading.Event, sock: socket.socket, told: list[str]) -> None:
    """Append each message as it comes."""
    while not ended.is_set():
        readable, _, _ = select.select([sock], [], [], 0.1)
        told += heard(sock) if readable else []


class States:
    """The states that the launcher reads, one after the other."""

    def __init__(self, *states: State) -> None:
        self.states = list(states)

    def __call__(self) -> State:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]


def test_ready_comes_once_and_the_status_when_it_changes(sock: socket.socket) -> None:
    manager = ServiceManager(sock.getsockname())
    read = States((False, "waiting"), (True, "1 r"), (True, "1 r"), (True, "2 r"))
    manager.turn(0.0, "starting", read)
    assert heard(sock) == ["STATUS=the lake server is starting"]
    manager.turn(0.5, "running", read)
    assert heard(sock) == []  # not due
    assert manager.next_deadline() == 1.0
    told = []
    for now in (1.0, 2.0, 12.0, 22.0):
        manager.turn(now, "running", read)
        told.append(heard(sock))
    assert told == [["STATUS=waiting"], ["READY=1\nSTATUS=1 r"], [], ["STATUS=2 r"]]
    manager.turn(22.1, "stopping", read)
    manager.turn(40.0, "stopping", read)
    assert heard(sock) == ["STOPPING=1\nSTATUS=stopping"]
    assert manager.next_deadline() is None


def test_the_watchdog_hears_twice_in_its_time_until_the_end(sock: socket.socket) -> None:
    manager = ServiceManager(sock.getsockname(), 60.0)
    for second in range(120):
        manager.turn(float(second), "running" if second < 60 else "stopping", States((True, "x")))
    assert heard(sock).count("WATCHDOG=1") == 4
    assert manager.next_deadline() == 120.0


def test_the_environment_is_taken_and_not_inherited() -> None:
    environ = {
        "NOTIFY_SOCKET": "/run/n",
        "WATCHDOG_USEC": "60000000",
        "WATCHDOG_PID": "7",
        "A": "b",
    }
    manager = ServiceManager.from_environment(environ, 7)
    assert environ == {"A": "b"}
    assert (manager._address, manager._watchdog_seconds) == ("/run/n", 60.0)
    other = {"NOTIFY_SOCKET": "/run/n", "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "8"}
    assert ServiceManager.from_environment(other, 7)._watchdog_seconds is None
    without = ServiceManager.from_environment({}, 7)
    without.turn(0.0, "running", States((True, "x")))
    assert without.next_deadline() is None


def test_a_service_manager_that_is_gone_or_full_stops_nothing(tmp_path: Path) -> None:
    ServiceManager(str(tmp_path / "none")).turn(0.0, "running", States((True, "x")))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0pgsub-test-{os.getpid()}")
        manager = ServiceManager(f"@pgsub-test-{os.getpid()}", 0.1)
        for number in range(1000):  # nobody reads: the queue is full soon
            manager.turn(float(number), "running", States((True, "x")))
        assert b"WATCHDOG=1" in sock.recv(4096)


def test_what_a_full_queue_refused_is_sent_again(sock: socket.socket) -> None:
    """A service that never says READY is ended by its manager."""
    manager = ServiceManager(sock.getsockname(), 1.0)
    for second in range(1000):  # nobody reads
        manager.turn(float(second), "starting", States((False, "x")))
    manager.turn(1000.0, "running", States((True, "1 r")))
    assert "READY=1" not in "".join(heard(sock))
    manager.turn(1001.0, "running", States((True, "1 r")))
    assert "READY=1\nSTATUS=1 r" in heard(sock)
    for second in range(2000, 3000):
        manager.turn(float(second), "running", States((True, "1 r")))
    manager.turn(3000.0, "stopping", States((True, "1 r")))
    assert "STOPPING=1" not in "".join(heard(sock))
    assert (manager.next_deadline() or 0.0) > 3000.0
    manager.turn(3001.0, "stopping", States((True, "1 r")))
    assert "STOPPING=1\nSTATUS=stopping" in heard(sock)


def test_the_line_about_tables_names_no_error_s_text(store: CatalogStore) -> None:
    apply, _ = busy(store)
    ready, text = service_state(store, (apply,), NOW)
    assert ready
    assert text == "tables: 1 i, 1 d; lag 2.5 s; errors 22003, see pgsub status"
    store.forget_last_error(apply.subid, 0)
    ready, text = service_state(store, (replace(apply, attached=False),), NOW)
    assert not ready
    assert text.endswith('; waiting for subscription "mysub"')
    assert SECRET not in text


def test_a_launcher_tells_its_service_manager(
    sock: socket.socket, family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", sock.getsockname())
    monkeypatch.setenv("WATCHDOG_USEC", "400000")
    (subid,) = family.subscribe("steady")
    launcher = family.start()
    told: list[str] = []
    ended = threading.Event()
    # Read all the time: the socket's queue holds ten messages, which come in two seconds.
    reader = threading.Thread(target=read_until, args=(ended, sock, told), daemon=True)
    reader.start()

    def has(text: str) -> bool:
        return any(text in each for each in list(told))

    wait_until(lambda: has("READY=1"), 20, family.log)
    worker = family.await_worker(subid)
    environment = Path(f"/proc/{worker.pid}/environ")
    if environment.exists():
        assert b"NOTIFY_SOCKET" not in environment.read_bytes()
    told.clear()
    wait_until(lambda: told.count("WATCHDOG=1") >= 3, 20, family.log)
    launcher.terminate()
    wait_until(lambda: has("STOPPING=1"), 20, family.log)
    launcher.communicate(timeout=20)
    ended.set()
    reader.join()
