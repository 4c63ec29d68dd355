"""Freed memory is the system's again; no server."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from config.monitor_limits import FREED_MEMORY_SHARE
from tests.bench.meters import anonymous_mb
from tests.processes import told_alone
from workers.freed_memory import FreedMemory, give_back, keep_none

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="the C library's function is glibc's")


def kept_by_arrow() -> float:
    """MB that a forked process has more, after its threads read a file."""
    sink = pa.BufferOutputStream()
    texts = pa.table({"a": [f"{n:036}" for n in range(500_000)]})
    pq.write_table(texts, sink, use_dictionary=False)
    file = sink.getvalue()

    def read(_: int) -> None:
        parquet = pq.ParquetFile(pa.BufferReader(file))
        assert sum(map(len, parquet.iter_batches(250_000, use_threads=False))) == 500_000

    read(0)
    if child := os.fork():  # a worker is one: the allocator's own thread is not in it
        return float(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    keep_none()
    before = anonymous_mb(os.getpid())
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read, range(16)))
    os._exit(max(0, min(255, round(anonymous_mb(os.getpid()) - before))))


def kept_by_glibc() -> float:
    """MB that a process has more, after small arrays between which others stay."""
    before = anonymous_mb(os.getpid())
    arrays = [np.ones(5_000) for _ in range(1_000)]
    left = arrays[::50]
    del arrays
    held = anonymous_mb(os.getpid()) - before
    give_back()
    assert len(left) == 20
    assert held > 20
    return anonymous_mb(os.getpid()) - before


@on_linux
def test_a_forked_process_keeps_no_pages_for_arrow() -> None:
    jemalloc = {"ARROW_DEFAULT_MEMORY_POOL": "jemalloc"}
    assert told_alone("kept_by_arrow", __name__, jemalloc) < 12, "and 22 to 42 MB else"


@on_linux
def test_free_pages_between_others_are_given_back() -> None:
    assert told_alone("kept_by_glibc", __name__, {}) < 10


def test_another_pool_of_arrow_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pa, "default_memory_pool", pa.system_memory_pool)
    monkeypatch.setattr(pa, "jemalloc_set_decay_ms", None)
    keep_none()


def test_a_small_part_of_the_time_is_taken() -> None:
    now, taken, calls = 0.0, 2.0, 0

    def trim() -> None:
        nonlocal now, calls
        now, calls = now + taken, calls + 1

    freed = FreedMemory(trim, lambda: now)
    freed.give_back()
    assert calls == 1
    rest = taken / FREED_MEMORY_SHARE
    for pause, expected in ((rest / 2, 1), (rest / 2 - 1, 1), (1.0, 2), (0.0, 2)):
        now += pause
        freed.give_back()
        assert calls == expected


def test_two_threads_do_not_trim_together() -> None:
    calls = 0

    def trim() -> None:
        nonlocal calls
        calls += 1
        freed.give_back()

    freed = FreedMemory(trim, lambda: 0.0)
    freed.give_back()
    assert calls == 1


def test_an_error_ends_the_turn() -> None:
    calls = 0

    def trim() -> None:
        nonlocal calls
        calls += 1
        raise MemoryError

    freed = FreedMemory(trim, lambda: 0.0)
    for _ in range(2):
        with pytest.raises(MemoryError):
            freed.give_back()
    assert calls == 2
