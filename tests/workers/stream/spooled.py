"""Bytes into a spool, and out of a batch."""

from __future__ import annotations

import numpy as np

from workers.stream.batch import Batch
from workers.stream.spool import Spool

LIMIT = 3 << 20
SEGMENT = 1 << 20


def put(spool: Spool, data: bytes, commit_end: int | None, size: int) -> None:
    """Write ``data`` as the receive thread does; it ends a transaction if ``commit_end``."""
    buf, position = spool.writable()
    while len(buf) - position < size:
        spool.grow(size)
        buf, position = spool.writable()
    buf[position : position + size] = np.frombuffer(data, dtype=np.uint8)
    commits = np.empty((0, 5), dtype=np.int64)
    if commit_end is not None:
        commits = np.array([[position + size, commit_end - 1, commit_end, 0, 1]], dtype=np.int64)
    spool.wrote(position + size, commits)


def content(batch: Batch) -> bytes:
    return batch.buf[batch.start : batch.end].tobytes()
