"""What a transaction in slices keeps does not grow with the number of its slices."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pytest

from tests.workers.scenarios.test_slices import A
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, row
from workers.lake.memory.destination import MemoryDestination
from workers.proto.messages import Message, Update

ROWS: Final = 10
CHANGES_OF_A_SLICE: Final = 800
CHANGES: Final = 50 * CHANGES_OF_A_SLICE
WORK_MEM: Final = CHANGES_OF_A_SLICE * (128 + 50)
KEPT_OF_A_SLICE_BYTES: Final = 7_000
"""The lake in memory keeps a snapshot of each; a number a change would be 6,400 bytes more."""


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
def test_memory_stays_as_it_was_after_the_first_slices() -> None:
    """The lake has the same few rows throughout, so only the transaction's changes grow."""
    world = Subscribed()
    world.put("a", *((key, 0) for key in range(ROWS)), ours=True)
    updates: list[Message] = [
        Update(1, None, None, row(str(n % ROWS), str(n))) for n in range(CHANGES)
    ]
    received = batch([A, *updates])
    del updates
    at_slices: list[int] = []

    def measure(operation: str) -> None:
        if operation == "write_branch":
            kept = tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes()
            at_slices.append(kept)

    worker = world.worker(MemoryDestination(world.lake, failpoint=measure))
    worker.work_mem = WORK_MEM
    worker.apply_batch(received)
    assert world.rows("a") == [(key, CHANGES - ROWS + key) for key in range(ROWS)]
    slices = len(at_slices)
    assert slices >= 40
    grown = at_slices[-2] - at_slices[10]
    assert grown < (slices - 12) * KEPT_OF_A_SLICE_BYTES, at_slices
    world.close()
