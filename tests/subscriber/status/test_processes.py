"""Processor time and memory of a process, compared with psutil's."""

from __future__ import annotations

import os
import sys

import psutil
import pytest

from subscriber.status.processes import process_use

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_the_use_of_this_process() -> None:
    found = process_use(os.getpid())
    assert found is not None
    mine = psutil.Process()
    times = mine.cpu_times()
    assert found.cpu_seconds == pytest.approx(times.user + times.system, abs=0.5)
    assert found.resident_bytes == pytest.approx(mine.memory_info().rss, rel=0.2)


def test_a_process_that_has_ended_has_no_use() -> None:
    assert process_use(None) is None
    assert process_use(2**22 + 1) is None
