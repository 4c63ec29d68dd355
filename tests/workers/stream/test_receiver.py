"""The receive thread's clocks; what it does with bytes is tested with a server."""

from __future__ import annotations

import logging
import os
import queue
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from psycopg import pq

from catalog.errcodes import ConnectionFailure
from catalog.pg_lsn import LSN
from catalog.remedies import SPOOL_FULL
from config.limits import RECEIVED_FEEDBACK_SECONDS
from tests.workers.columnar.stub_publisher import keepalive, status_update, streaming, wal
from tests.workers.transactions import batch, put
from workers.columnar.drain import DrainResult, DrainStatus
from workers.proto import encode
from workers.proto.messages import (
    Begin,
    Commit,
    LogicalMessage,
    StreamCommit,
    StreamStart,
    StreamStop,
)
from workers.publisher.connection import WalReceiverConn
from workers.stream.receiver import ReceiveLimits, Receiver, ReceiveStats
from workers.stream.spool import Spool

LIMITS = ReceiveLimits(
    wal_receiver_timeout=0,
    wal_receiver_status_interval=0,
    wal_sender_timeout=60.0,
    spool_max_size=1 << 30,
)


NO_COMMITS = np.empty((0, 5), np.int64)


class Silent:
    """A connection on which nothing ever arrives."""

    pgconn_ptr = 0

    def __init__(self) -> None:
        self.read, self.write = os.pipe()
        self.sent: list[bytes] = []

    def is_near(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.read

    def send(self, data: bytes) -> None:
        self.sent.append(data)


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    conn = Silent()
    made = Receiver(
        cast("Any", conn),
        Spool(tmp_path, memory_limit=1 << 20, segment_bytes=1 << 20),
        LIMITS,
        keys="subid=16384 slot=mysub",
        wake_main=lambda: None,
        report=lambda _: None,
        remember_flush=lambda _: None,
    )
    yield made
    for fd in (conn.read, conn.write, made._wake_r, made._wake_w):
        os.close(fd)


def test_new_limits_count_at_once(receiver: Receiver) -> None:
    receiver._heard -= 30.0
    receiver.wake()  # else the wait lasts a second
    receiver._wait()
    receiver.set_limits(replace(LIMITS, wal_receiver_timeout=20.0))
    with pytest.raises(ConnectionFailure, match="due to timeout"):
        receiver._wait()


def test_new_limits_wake_the_thread(receiver: Receiver) -> None:
    receiver.set_limits(replace(LIMITS, wal_receiver_status_interval=5.0))
    assert receiver.limits.wal_receiver_status_interval == 5.0
    assert os.read(receiver._wake_r, 10)


def sent(receiver: Receiver) -> list[bytes]:
    """The status updates that went out."""
    return cast("Silent", receiver._conn).sent


def test_silence_for_half_of_the_timeout_asks_for_a_reply_once(receiver: Receiver) -> None:
    """H-12: one request at half of it, whatever turns there are, and an error at all of it."""
    receiver.set_limits(replace(LIMITS, wal_receiver_timeout=20.0))
    receiver._heard -= 11.0
    for _ in range(2):
        receiver.wake()
        receiver._wait()
    assert [(update[:1], update[-1]) for update in sent(receiver)] == [(b"r", 1)]
    receiver._heard -= 10.0
    with pytest.raises(ConnectionFailure, match="due to timeout"):
        receiver._wait()


def test_while_the_spool_is_full_a_status_goes_out_unasked_and_silence_does_not_count(
    receiver: Receiver,
) -> None:
    put(receiver._spool, batch([]))
    full = replace(LIMITS, wal_sender_timeout=6.0, wal_receiver_timeout=20.0, spool_max_size=0)
    receiver.set_limits(full)
    assert receiver._paused()
    for elapsed, updates in ((1.0, 0), (1.1, 1), (1.9, 1), (0.2, 2)):
        receiver._sent -= elapsed
        receiver._heard -= 30.0
        receiver.wake()
        receiver._wait_paused()
        assert len(sent(receiver)) == updates
    receiver.set_limits(replace(full, spool_max_size=1 << 30))
    assert not receiver._paused()
    receiver._wait()


def test_a_full_spool_is_told_once_and_until_half_of_it_is_free(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """Five transactions fill it. Room for one of them is no end of the pause."""
    five = batch([], [], [], [], [])
    put(receiver._spool, five)
    size = five.end // 5 + 40  # with an entry of the index
    told: list[ReceiveStats] = []
    receiver._report = told.append
    receiver._limits = replace(LIMITS, spool_max_size=5 * size)

    def turn() -> tuple[bool, int]:
        paused = receiver._paused()
        receiver._log_pause(paused)
        return paused, len(told)

    with caplog.at_level(logging.INFO, "workers.stream.receiver"):
        assert turn() == (False, 0)
        put(receiver._spool, batch([], after=500))
        assert turn() == turn() == (True, 1)
        assert told[0].spool_bytes == 6 * size
        assert told[0].paused_since
        for _ in range(3):
            assert receiver._spool.take(size, 1)
            assert turn() == (False, 1)
        assert receiver._spool.take(size, 1)
        assert turn() == turn() == (False, 2)
        assert (told[1].spool_bytes, told[1].paused_since) == (2 * size, 0)
    paused, resumed = caplog.records
    assert (paused.levelno, paused.__dict__["HINT"]) == (logging.WARNING, SPOOL_FULL)
    assert f"{6 * size} bytes received and not applied, spool_max_size is {5 * size}B" in (
        paused.getMessage()
    )
    assert "action=spool_full subid=16384 slot=mysub reading" in paused.getMessage()
    assert "goes on after 0 s" in resumed.getMessage()


def test_a_pause_is_over_when_no_whole_transaction_is_left(receiver: Receiver) -> None:
    """The open one is read to its end, however large."""
    whole = batch([])
    put(receiver._spool, whole)
    told: list[ReceiveStats] = []
    receiver._report = told.append
    receiver._limits = replace(LIMITS, spool_max_size=whole.end + 50)
    buf, position = receiver._spool.writable()
    buf[position : position + 100] = 1
    receiver._spool.wrote(position + 100, NO_COMMITS)
    receiver._log_pause(receiver._paused())
    assert receiver._spool.take(1, 1)
    receiver._log_pause(receiver._paused())
    assert [bool(stats.paused_since) for stats in told] == [True, False]
    assert told[1].spool_bytes == 100


def drained(last_received: int, send_time: int, keepalive_end: int) -> DrainResult:
    """What a call brought; times are the publisher's, since 2000."""
    return DrainResult(
        0, DrainStatus.IDLE, last_received, send_time, keepalive_end, False, 0, 1, 0, NO_COMMITS
    )


def test_the_latest_end_is_moved_by_keepalives_only(receiver: Receiver) -> None:
    for lsn, send_time, keepalive_end in ((700, 1, 0), (800, 2, 750), (900, 3, 0)):
        receiver._positions.received(lsn)
        receiver._heard_something(drained(lsn, send_time, keepalive_end), 100)
    stats = receiver._stats
    assert (stats.last_lsn, stats.reply_lsn) == (900, 800)
    assert stats.received_bytes == 300
    assert stats.last_send_time - stats.reply_time == 1
    assert stats.flush_lsn == 0
    receiver._send_feedback(force=True)
    assert (receiver._stats.flush_lsn, receiver._stats.reply_lsn) == (900, 800)


def test_what_was_received_is_confirmed_now_and_then_and_what_is_durable_at_once(
    receiver: Receiver,
) -> None:
    """A confirmation is a write to the catalog: not one for each piece of a transaction."""
    remembered: list[LSN] = []
    receiver._remember_flush = remembered.append
    receiver._sent -= 1
    for lsn in range(100, 1100, 100):
        receiver._positions.received(lsn)
        receiver._maybe_send_feedback()
    assert remembered == [100]
    due = receiver._seconds_to_feedback(receiver._sent)
    assert 0 < due <= RECEIVED_FEEDBACK_SECONDS + 1e-6, "the difference of two clocks is rounded"
    receiver._sent -= RECEIVED_FEEDBACK_SECONDS
    receiver._maybe_send_feedback()
    assert remembered == [100, 1000]
    assert receiver._seconds_to_feedback(receiver._sent) == inf, "nothing is to be told"
    receiver._positions.store_flush_position(1200)
    receiver._positions.received(1300)
    assert receiver._seconds_to_feedback(receiver._sent) == inf, "it is not durable yet"
    receiver._positions.mark_durable(1200)
    receiver._maybe_send_feedback()
    assert remembered == [100, 1000, 1300]


def test_the_position_of_a_keepalive_is_confirmed_at_once(receiver: Receiver) -> None:
    """A synchronous commit of tables that are not published waits for nothing else."""
    for lsn, keepalive_end, sends in ((100, 0, 0), (200, 200, 1), (300, 0, 1), (400, 400, 2)):
        receiver._positions.received(lsn)
        receiver._heard_something(drained(lsn, 1, keepalive_end), 10)
        receiver._maybe_send_feedback()
        assert len(sent(receiver)) == sends, lsn
    receiver._heard_something(drained(400, 1, 400), 10)
    receiver._maybe_send_feedback()
    assert len(sent(receiver)) == 2, "nothing is new"


def test_a_stream_without_a_first_message_is_waited_for(receiver: Receiver) -> None:
    """Nothing can be confirmed, and the thread does not ask again and again."""
    receiver.set_limits(replace(LIMITS, wal_receiver_status_interval=10.0))
    receiver._sent -= 11
    receiver._maybe_send_feedback()
    assert sent(receiver) == []
    assert receiver._seconds_to_feedback(receiver._sent) == 10.0


def test_one_whole_transaction_is_received_however_small_the_spool(receiver: Receiver) -> None:
    receiver.set_limits(replace(LIMITS, spool_max_size=0))
    buf, position = receiver._spool.writable()
    buf[position : position + 100] = 1
    receiver._spool.wrote(position + 100, np.empty((0, 5), np.int64))
    assert not receiver._paused()


def receiver_on(pgconn: pq.abc.PGconn, tmp_path: Path, remembered: list[int]) -> Receiver:
    return Receiver(
        WalReceiverConn(pgconn, lambda: False),
        Spool(tmp_path, memory_limit=1 << 20, segment_bytes=1 << 20),
        LIMITS,
        keys="",
        wake_main=lambda: None,
        report=lambda _: None,
        remember_flush=remembered.append,
    )


def test_a_transaction_in_progress_holds_no_position_back_until_it_commits(tmp_path: Path) -> None:
    """The publisher sends it again if it has not committed by the confirmed position."""
    updates: queue.Queue[tuple[int, int]] = queue.Queue()
    remembered: list[int] = []
    row = encode.streamed(LogicalMessage(True, LSN(1), "p", b"x"), 7)
    commit = encode.message(StreamCommit(7, LSN(599), LSN(600), 0))

    def publisher(sock: socket.socket) -> None:
        sock.sendall(wal(encode.message(StreamStart(7, True)), end=400) + wal(row, end=410))
        sock.sendall(keepalive(420, reply=True))
        while (told := status_update(sock)) != (420, 420):
            updates.put(told)
        updates.put(told)
        sock.sendall(wal(row, end=430) + wal(encode.message(StreamStop()), end=440))
        sock.sendall(wal(commit, end=600) + keepalive(610, reply=True))
        with suppress(ConnectionError):
            while True:
                updates.put(status_update(sock))

    with streaming(publisher) as pgconn:
        receiver = receiver_on(pgconn, tmp_path, remembered)
        receiver.start()
        while (told := updates.get(timeout=60)) != (420, 420):
            assert told == (400, 400)
        while told[0] < 610:
            told = updates.get(timeout=60)
            assert told[1] <= 440, "the commit is confirmed before it is durable"
        assert receiver.idle_position() is None
        batch = receiver._spool.take(1 << 20, 9)
        assert batch is not None
        assert (batch.last_end, batch.first_xid, receiver.idle_position()) == (600, 7, None)
        receiver.mark_durable(LSN(600))
        assert updates.get(timeout=60) == (610, 610)
        assert receiver.idle_position() == 610
        receiver.stop()


def test_a_reply_that_is_asked_for_confirms_nothing_that_is_pending(tmp_path: Path) -> None:
    """The keepalive names a position beyond two transactions of which neither is durable yet."""
    updates: queue.Queue[tuple[int, int]] = queue.Queue()
    remembered: list[int] = []

    def publisher(sock: socket.socket) -> None:
        for end in (300, 500):
            for message in (Begin(LSN(end - 1), 0, end), Commit(LSN(end - 1), LSN(end), 0)):
                sock.sendall(wal(encode.message(message), end=end))
        sock.sendall(keepalive(510, reply=True))
        with suppress(ConnectionError):
            while True:
                updates.put(status_update(sock))

    with streaming(publisher) as pgconn:
        receiver = receiver_on(pgconn, tmp_path, remembered)
        receiver.start()
        assert updates.get(timeout=60) == (510, 0)
        assert remembered == []
        for durable, confirmed in ((300, 300), (500, 510)):
            receiver.mark_durable(LSN(durable))
            assert updates.get(timeout=60) == (510, confirmed)
        receiver.stop()
    assert remembered == [300, 510]


def test_what_ends_the_stream_is_known_to_the_sessions_beside(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question on a second session waits for a frozen publisher until then."""
    receiver.set_limits(replace(LIMITS, wal_receiver_timeout=20.0))
    receiver._heard -= 30.0
    monkeypatch.setattr(receiver, "_turn", receiver._wait)
    receiver.run()
    assert isinstance(receiver.error, ConnectionFailure)
    assert receiver._conn.stream_lost is receiver.error
