"""When an idle lake server gives memory back, and that it does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from config.monitor_limits import LAKE_QUIET_WORK_SECONDS
from tests.fix_lake import Lake
from workers.lake.api.connection import brief
from workers.lake.api.gateway import gateway_address
from workers.lake.server.idle_memory import (
    QuietTime,
    give_back,
    memory_options,
    processor_seconds,
)

WORK = LAKE_QUIET_WORK_SECONDS


def returns(*used: float) -> list[int]:
    """The seconds at which memory is given back, of a server asked every 30 s that used so much."""
    quiet = QuietTime()
    return [30 * at for at, each in enumerate(used) if quiet.is_due(30.0 * at, each)]


@pytest.mark.parametrize(
    ("used", "at"),
    [
        ([WORK, WORK, WORK, WORK, WORK], [60]),
        ([WORK, WORK + 0.3, WORK + 0.6, WORK + 0.9, WORK + 1.2], [60]),
        ([1.0, 1.0, 1.0, 1.0], []),
        ([WORK, WORK, WORK + 20, WORK + 20, WORK + 20, WORK + 20], [120]),
        ([WORK, WORK, WORK, WORK + 2, WORK + 2, WORK + 2, WORK + 2], [60]),
        ([WORK, WORK, WORK, 2 * WORK, 2 * WORK, 2 * WORK, 2 * WORK], [60, 150]),
    ],
    ids=["quiet", "almost quiet", "no work", "work between", "too little", "a second time"],
)
def test_once_after_work(used: Sequence[float], at: list[int]) -> None:
    assert returns(*used) == at


def test_frequent_looks_wait_as_long() -> None:
    quiet = QuietTime()
    due = [second for second in range(120) if quiet.is_due(float(second), WORK)]
    assert due == [45]


def test_the_processor_time_is_the_system_s() -> None:
    told = processor_seconds(Path("/proc/self"))
    assert told == pytest.approx(sum(os.times()[:2]), abs=0.5)


def test_a_process_that_is_gone_has_none(tmp_path: Path) -> None:
    assert processor_seconds(tmp_path) is None


@pytest.mark.spark
def test_a_full_heap_shrinks_and_the_options_are_as_before(lake_server: Lake) -> None:
    address = gateway_address(lake_server.url)
    assert address is not None
    with brief(*address) as connections:
        array = connections.jvm.java.nio.ByteBuffer.allocate
        arrays = [array(20 << 20) for _ in range(15)]
        runtime = connections.jvm.java.lang.Runtime.getRuntime()
        grown = int(runtime.totalMemory())
        assert grown > len(arrays) * (20 << 20)
    with brief(*address) as connections:  # Java may drop the arrays now
        runtime = connections.jvm.java.lang.Runtime.getRuntime()
        give_back(connections)
        left, free = int(runtime.totalMemory()), int(runtime.freeMemory())
        assert left < grown - (200 << 20)
        assert free < left // 2
    pid = str(lake_server.server.process.pid)
    jcmd = shutil.which("jcmd")
    if jcmd is not None:
        flags = subprocess.run([jcmd, pid, "VM.flags", "-all"], capture_output=True, text=True)
        words = r"(M..HeapFreeRatio|Tier3InvocationThreshold) += (\d+)"
        told = dict(re.findall(words, flags.stdout))
        assert told == {
            "MinHeapFreeRatio": "20",
            "MaxHeapFreeRatio": "45",
            "Tier3InvocationThreshold": "1000",
        }


def test_collectors_that_can_shrink_a_heap() -> None:
    """One thread for two processors, several for more."""
    arena, ratio = "-Dio.netty.allocator.numDirectArenas=1", "-XX:NewRatio=4"
    for_two, for_three = set(memory_options(512 << 20, 2)), set(memory_options(512 << 20, 3))
    assert {"-Xmx512m", "-XX:+UseSerialGC", arena, ratio} <= for_two
    assert {"-Xmx512m", "-XX:+UseG1GC"} <= for_three
    assert not {arena, ratio} & for_three
    assert {"-XX:MinHeapFreeRatio=20", "-XX:MaxHeapFreeRatio=45"} <= for_two & for_three
