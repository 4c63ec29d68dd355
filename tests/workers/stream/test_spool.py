"""Whole transactions come out, once, in order, wherever their bytes lived meanwhile."""

from __future__ import annotations

import errno
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog.errcodes import IoError
from tests.workers.stream.spooled import LIMIT, SEGMENT, content, put
from workers.stream.flush_position import FlushPositions
from workers.stream.spool import Spool


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from([10, 1000, 300_000, 1_500_000]), min_size=1, max_size=4),
            st.booleans(),
        ),
        max_size=12,
    )
)
def test_what_goes_in_comes_out(tmp_path: Path, transactions: list[tuple[list[int], bool]]) -> None:
    spool = Spool(tmp_path, memory_limit=LIMIT, segment_bytes=SEGMENT)
    expected = b""
    got = b""
    ends: list[int] = []
    for number, (sizes, take) in enumerate(transactions, start=1):
        for index, size in enumerate(sizes):
            data = bytes([(number * 7 + index) % 251]) * size
            last = index == len(sizes) - 1
            put(spool, data, number * 100 if last else None, size)
            assert spool.has_open_transaction() is not last
            expected += data
        while take and (batch := spool.take(2 << 20, 99)) is not None:
            got += content(batch)
            ends += batch.end_lsn.tolist()
    while (batch := spool.take(2 << 20, 99)) is not None:
        got += content(batch)
        ends += batch.end_lsn.tolist()
    assert got == expected
    assert ends == [number * 100 for number in range(1, len(transactions) + 1)]
    assert spool.is_empty()
    assert not list(tmp_path.iterdir()), "spool files have no name"
    spool.close()


def test_memory_is_bounded_and_the_rest_is_on_disk(tmp_path: Path) -> None:
    spool = Spool(tmp_path, memory_limit=LIMIT, segment_bytes=SEGMENT)
    for _ in range(20):
        put(spool, b"x" * (1 << 20), None, 1 << 20)
    memory, disk = spool.size()
    assert memory <= LIMIT
    assert disk >= 16 << 20
    assert spool.take(1 << 20, 99) is None, "the transaction is still open"
    put(spool, b"y", 100, 1)
    batch = spool.take(1 << 20, 99)
    assert batch is not None
    assert batch.end - batch.start == (20 << 20) + 1
    assert batch.mapping is not None
    spool.close()


def test_a_batch_survives_what_is_received_after_it(tmp_path: Path) -> None:
    spool = Spool(tmp_path, memory_limit=LIMIT, segment_bytes=SEGMENT)
    put(spool, b"a" * 1000, 100, 1000)
    batch = spool.take(1 << 20, 99)
    assert batch is not None
    for number in range(2, 200):
        put(spool, b"b" * 20_000, number * 100, 20_000)
    assert content(batch) == b"a" * 1000


def peak_memory(work: Callable[[], None]) -> int:
    """The most bytes that ``work`` had allocated at a time."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_large_transaction_never_takes_more_than_the_limit(tmp_path: Path) -> None:
    spool = Spool(tmp_path, memory_limit=8 << 20, segment_bytes=64 << 20)

    def receive() -> None:
        for _ in range(200):
            put(spool, b"x" * 100_000, None, 100_000)

    # A buffer that grows is there twice, and then there is a scratch buffer.
    assert peak_memory(receive) < 13 << 20
    spool.close()


def test_tiny_transactions_take_no_memory_beyond_the_limit(tmp_path: Path) -> None:
    """A lake stands still while 200,000 of them come, 2,000 with each turn of the thread."""
    spool = Spool(tmp_path, memory_limit=2 << 20, segment_bytes=1 << 20)
    positions = FlushPositions()
    turn, size = 2_000, 100

    def receive() -> None:
        for first in range(0, 200_000, turn):
            buf, position = spool.writable()
            while len(buf) - position < turn * size:
                spool.grow(turn * size)
                buf, position = spool.writable()
            numbers = np.arange(first, first + turn)
            ends = (numbers + 1) * 1_000
            offsets = position + (np.arange(turn) + 1) * size
            commits = np.stack([offsets, ends - 1, ends, numbers * 0, numbers * 0 + 1], axis=1)
            spool.wrote(position + turn * size, commits)
            for end in ends.tolist():
                positions.store_flush_position(end)

    assert peak_memory(receive) < 12 << 20  # the records are 20 MB, their index 8 MB
    assert sum(spool.size()) == 200_000 * (size + 40)
    taken = 0
    while (batch := spool.take(1 << 20, 10**9)) is not None:
        assert batch.end - batch.start == size * batch.ntxns
        taken += batch.ntxns
        positions.mark_durable(batch.last_end)
    assert taken == 200_000
    assert not positions.is_pending
    spool.close()


def test_what_was_taken_is_let_go_though_the_stream_never_pauses(tmp_path: Path) -> None:
    """A transaction is always partly here when the last one is taken."""
    spool = Spool(tmp_path, memory_limit=LIMIT, segment_bytes=1 << 30)

    def receive() -> None:
        put(spool, b"half", None, 4)
        for number in range(2_000):
            put(spool, b"half", 100 * (number + 1), 4)
            put(spool, b"o" * 20_000, None, 20_000)
            batch = spool.take(1 << 20, 99)
            assert batch is not None
            assert content(batch)[-4:] == b"half"
            assert batch.last_end == 100 * (number + 1)

    assert peak_memory(receive) < 4 << 20
    assert spool.size() == (20_000, 0)
    spool.close()


def test_a_batch_has_at_most_so_many_changes_unless_one_transaction_has_more(
    tmp_path: Path,
) -> None:
    spool = Spool(tmp_path, memory_limit=LIMIT, segment_bytes=SEGMENT)
    for number, changes in enumerate([2, 0, 3, 9, 0, 1], start=1):
        buf, position = spool.writable()
        buf[position] = number
        commit = [position + 1, number * 100 - 1, number * 100, 0, changes]
        spool.wrote(position + 1, np.array([commit], dtype=np.int64))
    taken = []
    while (batch := spool.take(1 << 20, 5)) is not None:
        taken.append((batch.ntxns, batch.nchanges))
    assert taken == [(3, 5), (1, 9), (2, 1)]


def test_a_disk_that_is_full_changes_nothing_of_what_was_received(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The main thread may take what is there before it hears of the error."""
    spool = Spool(tmp_path, memory_limit=LIMIT, segment_bytes=1 << 30)
    for number in range(1, 4):
        put(spool, bytes([number]) * 400_000, number * 100, 400_000)
    first = spool.take(400_000, 99)
    assert first is not None

    def half(fd: int, data: npt.NDArray[np.uint8]) -> None:
        os.write(fd, data[: len(data) // 2].data)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("workers.stream.segment.write_all", half)
    with pytest.raises(IoError) as raised:
        put(spool, b"x" * LIMIT, None, LIMIT)
    assert raised.value.code == "53100"
    assert content(first) == b"\x01" * 400_000
    rest = spool.take(1 << 20, 99)
    assert rest is not None
    assert content(rest) == b"\x02" * 400_000 + b"\x03" * 400_000
    assert rest.end_lsn.tolist() == [200, 300]
    assert not list(tmp_path.iterdir())
    spool.close()


def test_segments_that_wait_on_disk_hold_no_memory(tmp_path: Path) -> None:
    spool = Spool(tmp_path, memory_limit=1 << 20, segment_bytes=1 << 20)

    def receive() -> None:
        for number in range(1, 101):
            put(spool, b"x" * 600_000, None, 600_000)
            put(spool, b"y" * 600_000, number * 100, 600_000)

    assert peak_memory(receive) < 14 << 20
    taken = 0
    while (batch := spool.take(1 << 20, 99)) is not None:
        taken += batch.end - batch.start
    assert taken == 100 * 1_200_000
    spool.close()
