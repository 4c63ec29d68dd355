"""Pages of a mapped batch go back to the kernel while the block runs, and not after it."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from tests.waiting import wait_until
from tests.workers.stream.mapped import mapped_batch, resident_pages
from tests.workers.stream.spooled import content
from workers.stream.batch import Batch
from workers.stream.pages import giving_pages_back


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "pages"]


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.stream.pages.GIVE_PAGES_BACK_SECONDS", 0.01)


def test_pages_go_back_again_and_again_and_the_bytes_stay(tmp_path: Path) -> None:
    batch = mapped_batch(tmp_path, 16)
    before = content(batch)
    with giving_pages_back(batch):
        for _ in range(2):
            assert content(batch) == before
            wait_until(lambda: resident_pages(batch) == 0, 10)
    assert threads() == []
    assert content(batch) == before
    assert resident_pages(batch) == 16


def test_an_error_in_the_block_ends_the_thread(tmp_path: Path) -> None:
    def work(batch: Batch) -> None:
        with giving_pages_back(batch):
            assert threads() == ["pages"]
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        work(mapped_batch(tmp_path, 1))
    assert threads() == []


def test_a_batch_in_memory_needs_no_thread() -> None:
    commits = np.array([[3, 99, 100, 0, 1]], dtype=np.int64)
    with giving_pages_back(Batch(np.zeros(3, np.uint8), 0, 3, commits)):
        assert threads() == []
