"""A segment holds the same bytes in memory and on disk, also behind a cut."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from workers.stream.segment import Segment


def put(segment: Segment, data: bytes) -> int:
    """Into the buffer, as the drain kernel writes; the distance that the segment answers."""
    at = 0 if segment.file is not None else segment.used
    segment.buf[at : at + len(data)] = np.frombuffer(data, np.uint8)
    return segment.take_in(at + len(data))


def content(segment: Segment) -> bytes:
    if segment.file is None:
        return segment.buf[segment.start : segment.used].tobytes()
    return os.pread(segment.file, segment.data, segment.start)


@pytest.mark.parametrize("spilled", [0, 1, 2, 3, 4])
def test_what_is_written_cut_and_written_again(tmp_path: Path, spilled: int) -> None:
    """Moved to disk before any of the steps, or never."""
    segment = Segment()
    segment.used = 10
    steps: list[Callable[[], object]] = [
        lambda: put(segment, b"a" * 100),
        lambda: put(segment, b"b" * 50),
        lambda: segment.cut(130),
        lambda: segment.extend(b"c" * 30),
    ]
    for number, step in enumerate(steps):
        if number == spilled:
            segment.spill(tmp_path, with_index=False)
        step()
    segment.begin_with(b"four", 10)
    assert content(segment) == b"four" + b"a" * 100 + b"b" * 20 + b"c" * 30
    assert (segment.data, segment.memory) == (154, 154 if spilled == 4 else 0)
    segment.close()
    assert not list(tmp_path.iterdir())


def test_the_distance_is_that_of_a_buffer_behind_the_file(tmp_path: Path) -> None:
    segment = Segment()
    assert put(segment, b"a" * 100) == 0
    assert put(segment, b"a" * 100) == 0
    segment.spill(tmp_path)
    assert put(segment, b"b" * 7) == 200
    assert put(segment, b"b" * 7) == 207
    segment.close()


def test_a_segment_grows_to_what_is_written_behind_it() -> None:
    segment = Segment()
    segment.resize(100)
    put(segment, b"a" * 90)
    segment.extend(b"b" * 90)
    assert content(segment) == b"a" * 90 + b"b" * 90
