"""The worker's side of the launcher, against a socket that the tests hold."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog.errcodes import ConnectionFailure, InternalError
from catalog.pg_lsn import LSN
from tests.waiting import wait_until
from tests.workers.process.launcher_peer import Peer, in_thread
from workers.process.launcher_link import LauncherLink
from workers.process.worker_slots import LogicalRepWorker, WorkerType

ROW = LogicalRepWorker(2, 7, WorkerType.APPLY, 16384, pid=1)


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


def test_a_push_sets_the_latch(link: LauncherLink, peer: Peer) -> None:
    peer.send(push="wakeup")
    assert link.latch.wait(10)
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


@pytest.mark.parametrize(
    ("message", "logged"),
    [
        ({"push": "lake"}, "sqlstate=XX000 unexpected KeyError at launcher_link.py:"),
        ({"push": "catalog", "seq": "x"}, "sqlstate=XX000 unexpected ValueError at "),
        ([], "sqlstate=08P01 message on the launcher's socket is not a JSON object"),
    ],
)
def test_an_error_in_the_link_s_thread_ends_the_worker_and_is_logged(
    link: LauncherLink,
    peer: Peer,
    lost: threading.Event,
    caplog: pytest.LogCaptureFixture,
    message: Any,
    logged: str,
) -> None:
    thread, results = in_thread(lambda: link.find(1, 0))
    peer.receive()
    peer.sock.sendall(json.dumps(message).encode() + b"\n")
    assert lost.wait(10)
    thread.join()
    assert results[0].code == "08006"
    assert f"action=launcher_link {logged}" in caplog.text
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


def test_the_link_is_read_even_if_nobody_waits(link: LauncherLink, peer: Peer) -> None:
    for _ in range(1000):
        peer.send(push="wakeup")
    attach(link, peer, lake="sc://x")
    wait_until(lambda: link.latch.wait(0), 10, "the latch")
    assert link.lake_url(timeout=0) == "sc://x"
