"""What is known of each transaction comes back whole, from memory or from disk."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workers.stream import commit_index
from workers.stream.batch import Ints
from workers.stream.commit_index import CommitIndex

ENTRY_BYTES = 40


def entries(first: int, count: int, changes: int = 1) -> Ints:
    """Transactions of ten bytes each; ``first`` numbers them."""
    numbers = np.arange(first, first + count)
    ends = (numbers + 1) * 10
    zeros = np.zeros(count, np.int64)
    return np.stack([ends, ends - 1, ends, zeros, np.full(count, changes)], axis=1)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=12), st.integers(0, 12))
def test_entries_come_out_in_order_once(
    tmp_path: Path, steps: list[tuple[int, bool]], spilled_at: int
) -> None:
    index, put, got = CommitIndex(), 0, 0
    for number, (count, takes) in enumerate(steps):
        if number == spilled_at:
            index.go_on_in(index.spill(tmp_path, 0))
        index.append(entries(put, count))
        put += count
        if takes and len(index):
            taken = index.take(got * 10, 25, 99)
            assert taken[:, 2].tolist() == [(got + n + 1) * 10 for n in range(len(taken))]
            assert 1 <= len(taken) <= 2
            got += len(taken)
        assert len(index) == put - got
        assert index.memory == (0 if spilled_at <= number else ENTRY_BYTES * (put - got))
        assert index.size == ENTRY_BYTES * (put - got)
    index.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_batch_may_need_several_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_disk: bool
) -> None:
    monkeypatch.setattr(commit_index, "INDEX_READ_TRANSACTIONS", 4)
    index = CommitIndex()
    index.append(entries(0, 30))
    if on_disk:
        index.go_on_in(index.spill(tmp_path, 0))
    assert len(index.take(0, 1000, 10)) == 10
    assert len(index.take(100, 110, 99)) == 11
    assert index.take(210, 1000, 99)[:, 2].tolist() == [(n + 1) * 10 for n in range(21, 30)]
    assert not len(index)


def test_offsets_follow_bytes_that_move(tmp_path: Path) -> None:
    index = CommitIndex()
    index.append(entries(0, 3))
    index.take(0, 10, 99)
    index.move(10)
    assert index.take(0, 10, 99)[:, 0].tolist() == [10]
    index.go_on_in(index.spill(tmp_path, 10))
    assert index.take(0, 10, 99)[:, 0].tolist() == [10]


def test_a_short_write_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:7]))
    index = CommitIndex()
    index.append(entries(0, 5))
    index.go_on_in(index.spill(tmp_path, 0))
    assert len(index.take(0, 1000, 99)) == 5
