"""Draining a real libpq whose other end is a few lines of Python."""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import pq

from catalog.errcodes import ProtocolViolation
from catalog.pg_lsn import LSN
from config.limits import DRAIN_COMMITS, DRAIN_FIRST_NAP_NANOSECONDS, DRAIN_LONGEST_NAP_NANOSECONDS
from tests.workers.columnar.records import insert, record, transaction
from tests.workers.columnar.stub_publisher import COPY_DONE, copy_data, keepalive, streaming, wal
from workers.columnar.drain import Drain, DrainResult, DrainStatus
from workers.columnar.warm import warm
from workers.proto.encode import message
from workers.proto.messages import BeginPrepare, CommitPrepared, Prepare, RollbackPrepared

OVER = (DrainStatus.END, DrainStatus.ERROR)


def drain_of(conn: pq.abc.PGconn, **options: Any) -> Drain:
    pointer = getattr(conn, "pgconn_ptr")  # noqa: B009 - the protocol class lacks it
    return Drain(pointer, **options)


def drain_all(
    conn: pq.abc.PGconn,
    size: int,
    longest_nap: int = DRAIN_FIRST_NAP_NANOSECONDS,
    *,
    messages: bool = False,
) -> tuple[bytes, list[DrainResult]]:
    """Everything up to the end of the stream through a buffer of ``size`` bytes."""
    drain = drain_of(conn, longest_nap=longest_nap, messages=messages)
    buf = np.zeros(size, np.uint8)
    received = b""
    results: list[DrainResult] = []
    while not results or results[-1].status not in OVER:
        result = drain.run(buf, 0)
        results.append(result)
        received += buf[: result.position].tobytes()
        if result.status == DrainStatus.FULL and result.need > len(buf):
            buf = np.zeros(result.need, np.uint8)
        if result.status == DrainStatus.IDLE:
            select.select([conn.socket], [], [], 10)
    drain.close()
    return received, results


def sends(*parts: bytes, then: bytes = COPY_DONE) -> Callable[[socket.socket], None]:
    def script(sock: socket.socket) -> None:
        for part in parts:
            sock.sendall(part)
        sock.sendall(then)

    return script


def test_messages_become_records_and_commits_are_noted() -> None:
    first = transaction([insert("1", "x"), insert("2", "y")], 1)
    second = transaction([], 2)
    whole = [*first, *second]
    stream = b"".join(
        wal(each, start=100 + at, end=200 + at, clock=at) for at, each in enumerate(whole)
    )
    with streaming(sends(stream)) as conn:
        received, results = drain_all(conn, 4096)
    assert received == b"".join(map(record, whole))
    assert results[-1].status is DrainStatus.END
    commits = np.concatenate([result.commits for result in results])
    ends = [len(b"".join(map(record, part))) for part in (first, whole)]
    assert commits.tolist() == [[ends[0], 100, 150, 7, 2], [ends[1], 200, 250, 7, 0]]
    assert max(result.last_received for result in results) == 200 + len(whole) - 1
    assert sum(result.messages for result in results) == len(whole)
    assert sum(result.bytes for result in results) == sum(map(len, whole))


def test_the_ends_of_prepared_transactions_are_noted_and_never_go_back() -> None:
    prepared = [
        message(BeginPrepare(LSN(100), LSN(150), 7, 9, "g")),
        message(insert("1", "x")),
        message(Prepare(LSN(100), LSN(150), 7, 9, "g")),
    ]
    commit = message(CommitPrepared(LSN(300), LSN(350), 8, 9, ""))
    rollback = message(RollbackPrepared(LSN(150), LSN(450), 7, 9, 9, "a name of many letters"))
    # PREPARE at 150 comes again behind the transaction that ended at 250.
    whole = [*prepared, *transaction([], 2), *prepared, commit, rollback]
    with streaming(sends(b"".join(map(wal, whole)))) as conn:
        received, results = drain_all(conn, 4096)
    assert received == b"".join(map(record, whole))
    commits = np.concatenate([result.commits for result in results])[:, 1:]
    assert commits.tolist() == [
        [100, 150, 7, 1],
        [200, 250, 7, 0],
        [100, 250, 7, 1],
        [300, 350, 8, 0],
        [150, 450, 9, 0],
    ]


def test_a_keepalive_moves_positions_and_stops_only_when_it_asks() -> None:
    stream = keepalive(90, clock=3) + keepalive(95, clock=4, reply=True) + keepalive(99)
    with streaming(sends(stream)) as conn:
        _, results = drain_all(conn, 64)
    asked = next(result for result in results if result.status is DrainStatus.REPLY_REQUESTED)
    assert asked.reply_requested
    assert (asked.keepalive_end, asked.last_received, asked.send_time) == (95, 95, 4)
    assert results[-1].keepalive_end == 99
    assert not results[-1].reply_requested


def test_a_message_that_does_not_fit_is_kept_and_not_counted() -> None:
    with streaming(sends(wal(b"a" * 50, end=10) + wal(b"b" * 100, end=20))) as conn:
        drain, buf = drain_of(conn), np.zeros(80, np.uint8)
        results = [drain.run(buf, 0)]
        while results[-1].status is DrainStatus.IDLE:
            select.select([conn.socket], [], [], 10)
            results.append(drain.run(buf, results[-1].position))
        full = results[-1]
        assert (full.status, full.position, full.need) == (DrainStatus.FULL, 54, 104)
        assert max(result.last_received for result in results) == 10
        again = drain.run(buf, 54)
        assert (again.status, again.position, again.last_received) == (DrainStatus.FULL, 54, 0)
        bigger = np.zeros(200, np.uint8)
        after = drain.run(bigger, 54)
        assert bigger[54:158].tobytes() == record(b"b" * 100)
        assert after.last_received == 20
        drain.close()


def test_closing_frees_a_message_that_is_still_kept() -> None:
    with streaming(sends(wal(b"a" * 50), then=b"")) as conn:
        drain = drain_of(conn)
        while drain.run(np.zeros(8, np.uint8), 0).status is not DrainStatus.FULL:
            select.select([conn.socket], [], [], 10)
        drain.close()
        drain.close()


def test_large_messages_among_small_ones_do_not_wait_for_naps() -> None:
    count = 1000
    parts = [wal(b"a" * 100) + wal(b"b" * 15_000) for _ in range(count)]
    with streaming(sends(*parts)) as conn:
        drain, buf = (
            drain_of(conn, longest_nap=DRAIN_LONGEST_NAP_NANOSECONDS),
            np.zeros(32 << 20, np.uint8),
        )
        position = drain.run(buf, 0).position  # the kernel is compiled by now
        started = time.monotonic()
        while (result := drain.run(buf, position)).status not in OVER:
            position = result.position
        assert result.position == count * (len(record(b"a" * 100)) + len(record(b"b" * 15_000)))
        assert time.monotonic() - started < count * DRAIN_LONGEST_NAP_NANOSECONDS / 1e9 / 2


def test_unknown_kinds_are_ignored() -> None:
    with streaming(sends(copy_data(b"z123") + wal(b"x"))) as conn:
        received, _ = drain_all(conn, 64)
    assert received == record(b"x")


@pytest.mark.parametrize(
    ("stream", "detail"),
    [
        (
            copy_data(b"w" + bytes(24)),
            "At byte 0 of the message the message type was expected (length 1); bytes left: 0.",
        ),
        (
            copy_data(b"w" + bytes(10)),
            "At byte 9 of the replication message the end LSN was expected (length 8); "
            "bytes left: 2.",
        ),
        (
            copy_data(b"k" + bytes(16)),
            "At byte 17 of the replication message the reply was expected (length 1); "
            "bytes left: 0.",
        ),
        (
            copy_data(b"k" + bytes(80)),
            "At byte 18 of the replication message the end was expected; bytes left: 63.",
        ),
        (
            wal(b"C\0" + bytes(7) + b"\1" + bytes(15)),
            "At byte 10 of the commit message the end_lsn was expected (not 0/0).",
        ),
        (
            wal(b"P\0" + (bytes(7) + b"\1") * 3 + bytes(4)),
            "At byte 30 of the prepare message the gid was expected (with a NUL at its end).",
        ),
        (
            wal(b"K\0" + (bytes(7) + b"\1") * 3 + bytes(3)),
            "At byte 26 of the commit prepared message the xid was expected (length 4); "
            "bytes left: 3.",
        ),
        (
            wal(b"r\0" + (bytes(7) + b"\1") * 4 + bytes(4)),
            "At byte 38 of the rollback prepared message the gid was expected (with a NUL at its "
            "end).",
        ),
        (
            wal(b"C\0" + (bytes(7) + b"\1") * 2 + bytes(7)),
            "At byte 18 of the commit message the commit time was expected (length 8); "
            "bytes left: 7.",
        ),
    ],
    ids=[
        "empty",
        "no end",
        "no reply",
        "longer",
        "no end of a commit",
        "no gid of a prepare",
        "no xid of a commit prepared",
        "no gid of a rollback prepared",
        "no time of a commit",
    ],
)
def test_a_malformed_envelope_is_a_protocol_violation(stream: bytes, detail: str) -> None:
    with streaming(sends(stream)) as conn, pytest.raises(ProtocolViolation) as caught:
        drain_all(conn, 64)
    assert caught.value.detail == detail


def test_the_end_of_the_connection_is_an_error_of_libpq() -> None:
    with streaming(sends(wal(b"x"), then=b"")) as conn:
        received, results = drain_all(conn, 64)
        assert results[-1].status is DrainStatus.ERROR
        assert received == record(b"x")
        assert conn.error_message


def test_more_commits_than_one_call_can_report() -> None:
    commit = b"C\0" + struct.pack(">qqq", 5, 6, 7)
    count = DRAIN_COMMITS * 2 + 1
    with streaming(sends(wal(commit) * count)) as conn:
        _, results = drain_all(conn, 1 << 20)
    assert DrainStatus.MORE in {result.status for result in results}
    assert sum(len(result.commits) for result in results) == count


def test_a_used_up_budget_says_there_may_be_more() -> None:
    go = threading.Event()

    def script(sock: socket.socket) -> None:
        assert go.wait(10)
        sock.sendall(wal(b"x") * 10 + COPY_DONE)

    with streaming(script) as conn:
        buf = np.zeros(1024, np.uint8)
        result = drain_of(conn).run(buf, 0, budget_ns=-1)
        assert (result.status, result.position) == (DrainStatus.MORE, 0)
        go.set()
        received, _ = drain_all(conn, 1024)
    assert received == record(b"x") * 10


def test_positions_outside_the_buffer_are_refused() -> None:
    with pytest.raises(ValueError, match="inside"):
        Drain(0).run(np.zeros(8, np.uint8), 9)


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.integers(1, 300), max_size=60),
    st.integers(1, 700),
    st.lists(st.integers(1, 4000), max_size=8),
    st.sampled_from([DRAIN_FIRST_NAP_NANOSECONDS, DRAIN_LONGEST_NAP_NANOSECONDS]),
)
def test_nothing_is_lost_however_the_bytes_arrive(
    sizes: list[int], room: int, cuts: list[int], longest_nap: int
) -> None:
    payloads = [bytes([70 + at % 2]) * size for at, size in enumerate(sizes)]
    stream = b"".join(map(wal, payloads))
    edges = sorted({0, *(cut for cut in cuts if cut < len(stream)), len(stream)})
    parts = [stream[start:end] for start, end in pairwise(edges)]
    with streaming(sends(*parts)) as conn:
        received, _ = drain_all(conn, room, longest_nap)
    assert received == b"".join(map(record, payloads))


def test_every_kernel_can_be_loaded_without_a_connection() -> None:
    warm()
