from __future__ import annotations

import mmap
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.bench import core
from tests.bench.meters import (
    MB,
    Peaks,
    cpu_seconds,
    files_mb,
    high_water,
    open_files_mb,
    proportional_mb,
)
from tests.bench.rehearsal import Pretended
from tests.bench.sides import LAKE_SERVER

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_the_largest_of_each_value_is_kept() -> None:
    values = iter([{"a": 1.0, "b": 9.0}, {"a": 5.04, "b": 2.0}, {"a": 3.0, "c": 1.0}])
    done = threading.Event()

    def measure() -> dict[str, float]:
        found = next(values, {})
        if not found:
            done.set()
        return found

    peaks = Peaks(measure)
    peaks.start()
    assert done.wait(30)
    assert peaks.stop() == {"a": 5.0, "b": 9.0, "c": 1.0}
    times = [at for at, _ in peaks.series]
    assert times == sorted(times)
    assert [seen for _, seen in peaks.series[:2]] == [{"a": 1.0, "b": 9.0}, {"a": 5.04, "b": 2.0}]


def test_a_look_at_a_process_that_ends_is_left_out() -> None:
    looks = iter([psutil.NoSuchProcess(1), None])
    done = threading.Event()

    def measure() -> dict[str, float]:
        error = next(looks, None)
        if error is not None:
            raise error
        done.set()
        return {"a": 1.0}

    peaks = Peaks(measure)
    peaks.start()
    assert done.wait(30)
    assert peaks.stop() == {"a": 1.0}


@linux
def test_pages_that_are_shared_count_once() -> None:
    held = b"x" * (64 * MB)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        os.read(reader, 1)  # until the parent has looked
        os._exit(0)
    try:
        sizes = {
            pid: (proportional_mb(pid), psutil.Process(pid).memory_info().rss / MB)
            for pid in (os.getpid(), child)
        }
    finally:
        os.close(reader)
        os.close(writer)
        os.waitpid(child, 0)
    assert len(held) / MB <= sizes[os.getpid()][1]
    together, counted_twice = (sum(each) for each in zip(*sizes.values(), strict=True))
    assert together < counted_twice - 60
    assert proportional_mb(2**22) == 0


def test_memory_is_summed_without_and_with_the_lake_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(core, "proportional_mb", float)
    ours: Any = Pretended("ours", "apply worker")
    monkeypatch.setattr(
        ours, "pids", lambda: {100: "apply worker", 30: "launcher", 1000: LAKE_SERVER}
    )
    assert core.together_mb(ours) == {"python_mb": 130.0, "all_mb": 1130.0}
    native: Any = Pretended("native", "logical replication apply worker")
    assert core.together_mb(native) == {}


@linux
def test_cpu_of_children_that_have_ended_counts() -> None:
    before = cpu_seconds([psutil.Process()])
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    assert cpu_seconds([psutil.Process()]) - before >= 0.2


def test_a_process_that_is_gone_takes_no_more() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    gone = psutil.Process(child.pid)
    child.wait()
    assert cpu_seconds([gone]) == 0.0


@linux
def test_unlinked_files_below_a_folder_count_once(tmp_path: Path) -> None:
    folder, other = tmp_path / "spool", tmp_path / "other"
    folder.mkdir()
    with (folder / "a").open("w+b") as inside, other.open("w+b") as outside:
        for file, size in ((inside, MB), (outside, 5 * MB)):
            file.write(bytes(size))
            file.flush()
        (folder / "a").unlink()
        with mmap.mmap(inside.fileno(), 0):
            assert open_files_mb(os.getpid(), folder) == 1.0


@linux
def test_the_high_water_mark_is_no_less_than_what_is_held_now() -> None:
    now = psutil.Process().memory_info().rss / MB
    assert high_water(os.getpid()) >= now - 1  # pages of each processor are counted apart


def test_a_process_that_is_not_there_has_no_high_water_mark() -> None:
    assert high_water(2**22 + 1) == 0.0


def test_files_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file").write_bytes(bytes(MB // 2))
    assert files_mb(tmp_path) == 0.5
    assert files_mb(tmp_path / "not there") == 0.0
