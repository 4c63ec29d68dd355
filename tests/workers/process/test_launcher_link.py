"""The worker's side of the launcher, against a socket that the tests hold."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog.errcodes import ConnectionFailure, InternalError, ProtocolViolation, ReplicationError
from catalog.pg_lsn import LSN
from config.limits import SOCKET_LINE_BYTES, SOCKET_PATH_BYTES
from tests.waiting import wait_until
from workers.process.latch import Latch
from workers.process.launcher_client import query_launcher
from workers.process.launcher_link import LauncherLink
from workers.process.launcher_socket import (
    LOCK_FILE,
    LineReader,
    LockInfo,
    encode,
    make_socket_path,
    read_lock_file,
    remove_socket,
)
from workers.process.worker_slots import LogicalRepWorker, WorkerType

ROW = LogicalRepWorker(2, 7, WorkerType.APPLY, 16384, pid=1)


class Peer:
    """The launcher's end of one connection, played by the test."""

    def __init__(self, data_dir: Path) -> None:
        path = data_dir / "socket"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._listener.settimeout(10)
        self._reader = LineReader()
        self._got: list[dict[str, Any]] = []
        self.sock = socket.socket()
        (data_dir / LOCK_FILE).write_bytes(LockInfo(os.getpid(), path, 1).to_json())

    def accept(self) -> None:
        self.sock.close()
        self.sock, _ = self._listener.accept()
        self.sock.settimeout(10)

    def receive(self) -> dict[str, Any]:
        while not self._got:
            data = self.sock.recv(65536)
            assert data, "the worker hung up"
            self._got += self._reader.feed(data)
        return self._got.pop(0)

    def send(self, **message: Any) -> None:
        self.sock.sendall(encode(message))

    def answer(self, **fields: Any) -> dict[str, Any]:
        request = self.receive()
        self.send(id=request["id"], **fields)
        return request

    def close(self) -> None:
        self.sock.close()
        self._listener.close()


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return Path(os.path.relpath(tmp_path)) if len(str(tmp_path)) > 90 else tmp_path


@pytest.fixture
def peer(data_dir: Path) -> Iterator[Peer]:
    made = Peer(data_dir)
    yield made
    made.close()


@pytest.fixture
def lost() -> threading.Event:
    return threading.Event()


@pytest.fixture
def link(data_dir: Path, peer: Peer, lost: threading.Event) -> Iterator[LauncherLink]:
    made: list[LauncherLink] = []
    # Not from the main thread, so that the test run keeps its own signal handlers.
    thread = threading.Thread(
        target=lambda: made.append(LauncherLink.connect(data_dir, 2, 7, on_lost=lost.set))
    )
    thread.start()
    peer.accept()
    thread.join()
    yield made[0]
    closer = threading.Thread(target=made[0].close)
    closer.start()
    closer.join()


def in_thread(call: Any) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(call())
        except ReplicationError as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


def attach(link: LauncherLink, peer: Peer, lake: str | None = None) -> LogicalRepWorker:
    thread, results = in_thread(link.attach)
    request = peer.answer(worker=ROW.to_json(), lake=lake, staging="/shared", catalog=3)
    thread.join()
    assert (request["op"], request["slot"], request["generation"]) == ("attach", 2, 7)
    row: LogicalRepWorker = results[0]
    return row


def test_attach_returns_the_worker_s_own_row(link: LauncherLink, peer: Peer) -> None:
    assert attach(link, peer) == ROW
    assert link.staging == "/shared"


def test_a_state_is_set_with_its_lsn_as_text(link: LauncherLink, peer: Peer) -> None:
    thread, results = in_thread(lambda: link.set_relstate(1, 2, "w", LSN(0x15_0000_0000)))
    request = peer.answer(found=True)
    thread.join()
    assert results == [True]
    assert (request["state"], request["lsn"]) == ("w", "15/0")


def test_an_error_in_a_reply_is_raised(link: LauncherLink, peer: Peer) -> None:
    thread, results = in_thread(link.attach)
    peer.answer(error={"sqlstate": "55006", "primary": "not waiting", "detail": None})
    thread.join()
    assert (results[0].code, results[0].primary) == ("55006", "not waiting")


def test_replies_find_their_requests_in_any_order(link: LauncherLink, peer: Peer) -> None:
    first, one = in_thread(lambda: link.wakeup(1, 0))
    request_one = peer.receive()
    second, two = in_thread(lambda: link.wakeup(2, 0))
    request_two = peer.receive()
    peer.send(id=request_two["id"], found=False)
    second.join()
    peer.send(id=request_one["id"], found=True)
    first.join()
    assert (one, two) == ([True], [False])


def test_a_push_sets_the_latch_and_calls_back(link: LauncherLink, peer: Peer) -> None:
    called = threading.Event()
    link.latch.on_set(called.set)
    peer.send(push="wakeup")
    assert link.latch.wait(10)
    assert called.wait(10)
    assert not link.latch.wait(0)


def test_the_lake_s_url_is_waited_for(link: LauncherLink, peer: Peer) -> None:
    attach(link, peer)
    thread, results = in_thread(link.lake_url)
    peer.send(push="lake", url="sc://here")
    thread.join()
    assert results == ["sc://here"]
    peer.send(push="lake", url=None)
    assert link.latch.wait(10)
    link.latch.wait(0.1)
    with pytest.raises(ConnectionFailure, match="lake server is not running"):
        link.lake_url(timeout=0.01)


def test_a_catalog_change_is_acknowledged_once(link: LauncherLink, peer: Peer) -> None:
    attach(link, peer)
    assert link.catalog_change() is None
    peer.send(push="catalog", seq=4)
    assert link.latch.wait(10)
    seq = link.catalog_change()
    peer.send(push="catalog", seq=5)  # comes while the catalog is being read
    assert link.latch.wait(10)
    link.acknowledge_catalog(seq)
    assert peer.receive() == {"op": "catalog_seen", "seq": 4}
    assert link.catalog_change() == 5
    link.acknowledge_catalog(5)
    assert link.catalog_change() is None


def test_reports_are_merged_and_nothing_is_lost(link: LauncherLink, peer: Peer) -> None:
    for number in range(1, 501):
        link.report(last_lsn=LSN(number), reply_time=number)
    link.report(phase="copy")
    seen: dict[str, Any] = {}
    messages = 0
    while seen.get("phase") is None or seen.get("last_lsn") != "0/1F4":
        message = peer.receive()
        assert message["op"] == "report"
        seen.update(message)
        messages += 1
    assert seen["reply_time"] == 500
    assert messages < 100


def test_a_report_of_an_unknown_kind_is_our_bug(link: LauncherLink) -> None:
    with pytest.raises(InternalError, match="cannot report relstate"):
        link.report(relstate="c")


def test_a_launcher_that_does_not_read_does_not_stop_reports(
    link: LauncherLink, peer: Peer
) -> None:
    for number in range(20_000):
        link.report(progress={"text": "x" * 1000, "number": number})
    assert peer.receive()["op"] == "report"


def test_the_end_of_the_launcher_ends_the_worker(
    link: LauncherLink, peer: Peer, lost: threading.Event
) -> None:
    thread, results = in_thread(lambda: link.find(1, 0))
    peer.receive()
    peer.sock.shutdown(socket.SHUT_RDWR)
    assert lost.wait(10)
    thread.join()
    assert results[0].code == "08006"
    assert link.lost.is_set()
    with pytest.raises(ConnectionFailure, match="the launcher is gone"):
        link.find(1, 0)


def test_closing_is_no_loss_and_sends_the_last_report(
    data_dir: Path, peer: Peer, lost: threading.Event
) -> None:
    thread, made = in_thread(lambda: LauncherLink.connect(data_dir, 2, 7, on_lost=lost.set))
    peer.accept()
    thread.join()
    made[0].report(phase="first")
    assert peer.receive()["phase"] == "first"
    made[0].report(phase="last")
    closer, _ = in_thread(made[0].close)
    assert peer.receive()["phase"] == "last"
    closer.join()
    assert peer.sock.recv(1) == b""
    assert not lost.is_set()


def test_no_launcher_no_status(tmp_path: Path) -> None:
    assert query_launcher(tmp_path) is None
    (tmp_path / LOCK_FILE).write_text("")
    assert query_launcher(tmp_path) is None
    (tmp_path / LOCK_FILE).write_bytes(LockInfo(1, tmp_path / "gone", 1).to_json())
    assert query_launcher(tmp_path) is None
    with pytest.raises(ConnectionFailure, match="the launcher is gone"):
        LauncherLink.connect(tmp_path, 0, 1, on_lost=lambda: None)


def test_a_launcher_that_does_not_answer_is_an_error(data_dir: Path, peer: Peer) -> None:
    with pytest.raises(ConnectionFailure, match="does not answer"):
        query_launcher(data_dir, timeout=0.05)


def test_lines_arrive_in_pieces() -> None:
    reader = LineReader()
    data = encode({"a": "ö\n"}) + encode({"b": 2})
    messages = [message for byte in data for message in reader.feed(bytes([byte]))]
    assert messages == [{"a": "ö\n"}, {"b": 2}]


@pytest.mark.parametrize("line", [b"\n", b"[1]\n", b"nonsense\n", b"\xff\xfe\n"])
def test_what_is_no_message_is_a_protocol_violation(line: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        LineReader().feed(line)


def test_a_line_without_end_is_not_collected_for_ever() -> None:
    reader = LineReader()
    for _ in range(SOCKET_LINE_BYTES // 2**20):
        assert reader.feed(b"x" * 2**20) == []
    with pytest.raises(ProtocolViolation, match="too long"):
        reader.feed(b"x")


def test_a_deep_directory_s_socket_lies_elsewhere(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    path = make_socket_path(deep)
    try:
        assert len(os.fsencode(path)) <= SOCKET_PATH_BYTES
        assert path.parent != deep
        assert path.parent.stat().st_mode & 0o777 == 0o700
    finally:
        remove_socket(path, deep)
    assert not path.parent.exists()


def test_the_lock_file_is_read_back(tmp_path: Path) -> None:
    info = LockInfo(17, Path("/run/x"), 5)
    (tmp_path / LOCK_FILE).write_bytes(info.to_json())
    assert read_lock_file(tmp_path) == info


def test_a_latch_that_is_set_is_not_waited_for_and_then_reset() -> None:
    latch = Latch()
    latch.set()
    latch.set()
    assert latch.wait(0)
    assert not latch.wait(0)


def test_a_latch_wakes_a_waiting_thread() -> None:
    latch = Latch()
    thread, results = in_thread(lambda: latch.wait(30))
    latch.set()
    thread.join()
    assert results == [True]


def test_a_callback_that_comes_late_hears_of_a_set_latch() -> None:
    latch = Latch()
    latch.set()
    called = threading.Event()
    latch.on_set(called.set)
    assert called.is_set()


def test_the_link_is_read_even_if_nobody_waits(link: LauncherLink, peer: Peer) -> None:
    for _ in range(1000):
        peer.send(push="wakeup")
    attach(link, peer, lake="sc://x")
    wait_until(lambda: link.latch.wait(0), 10, "the latch")
    assert link.lake_url(timeout=0) == "sc://x"
