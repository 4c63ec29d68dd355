"""The transactions of a batch: positions, counts, parts, and pages of a mapped file."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np

from tests.workers.stream.mapped import mapped_batch, resident_pages
from tests.workers.stream.spooled import LIMIT, SEGMENT, content, put
from workers.stream.batch import Batch
from workers.stream.spool import Spool


def test_a_batch_knows_the_positions_and_changes_of_its_transactions() -> None:
    commits = np.array([[10, 99, 100, 7, 2], [30, 199, 200, 8, 3]], dtype=np.int64)
    batch = Batch(np.zeros(30, np.uint8), 0, 30, commits)
    assert (batch.ntxns, batch.nchanges, batch.last_end) == (2, 5, 200)
    assert (batch.final_lsn.tolist(), batch.end_lsn.tolist()) == ([99, 199], [100, 200])
    assert batch.first_commit_time == 946_684_800_000_007
    second = batch.part(1, 2)
    assert (second.start, second.end, second.nchanges, second.last_end) == (10, 30, 3, 200)


def test_parts_of_a_batch(tmp_path: Path) -> None:
    spool = Spool(tmp_path, memory_limit=LIMIT, segment_bytes=SEGMENT)
    for number in range(1, 4):
        put(spool, bytes([number]) * 10, number * 100, 10)
    batch = spool.take(1 << 20, 99)
    assert batch is not None
    assert content(batch.part(1, 2)) == b"\x02" * 10
    assert batch.part(0, 2).last_end == 200
    assert content(batch.part(0, 1)) + content(batch.part(1, 3)) == content(batch)


def test_a_part_of_a_mapped_batch_keeps_the_mapping(tmp_path: Path) -> None:
    batch = mapped_batch(tmp_path, 4)
    assert batch.part(0, 1).mapping is batch.mapping


def test_pages_given_back_are_no_memory_and_have_the_same_bytes(tmp_path: Path) -> None:
    batch = mapped_batch(tmp_path, 8)
    before = content(batch)
    assert resident_pages(batch) == 8
    batch.give_pages_back(2 * mmap.PAGESIZE + 5, 4 * mmap.PAGESIZE)
    assert resident_pages(batch) == 6
    batch.give_pages_back(4 * mmap.PAGESIZE, 4 * mmap.PAGESIZE)
    assert resident_pages(batch) == 6
    assert content(batch) == before


def test_a_batch_in_memory_has_no_pages_to_give_back() -> None:
    commits = np.array([[3, 99, 100, 0, 1]], dtype=np.int64)
    batch = Batch(np.full(3, 7, np.uint8), 0, 3, commits)
    batch.give_pages_back(0, 3)
    assert content(batch) == b"\7\7\7"
