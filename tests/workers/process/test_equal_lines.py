"""Equal lines are limited over all processes, and no count is lost."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from config.monitor_limits import (
    LOG_EQUAL_LINES,
    LOG_EQUAL_SECONDS,
    LOG_EQUAL_TEXTS,
)
from workers.process.equal_lines import FILE_NAME, EqualLines
from workers.process.log_format import Line

ERROR = Line("apply 1/0", 1000.0, 415, "ERROR", "action=error subid=1 no connection")


def test_the_same_failure_a_hundred_times_is_written_ten_times_and_counted(tmp_path: Path) -> None:
    """Each line comes from another worker: pid and generation differ."""
    written = []
    for number in range(100):
        start = f"action=worker_start subid=1 slot=0 generation={number} pid={number} has started"
        line = replace(ERROR, created=1000.0 + 5 * number, pid=number, message=start)
        written += EqualLines(tmp_path).admit(line)
    assert len(written) == LOG_EQUAL_LINES
    later = replace(ERROR, created=1000.0 + LOG_EQUAL_SECONDS, message="action=other")
    counted, other = EqualLines(tmp_path).admit(later)
    assert (counted.repeated, counted.message) == (
        100 - LOG_EQUAL_LINES,
        "action=worker_start subid=1 slot=0 generation=99 pid=99 has started",
    )
    assert other == later
    again = replace(later, created=later.created + 1, message="action=third")
    assert EqualLines(tmp_path).admit(again) == [again]


@pytest.mark.parametrize(
    "other",
    [
        replace(ERROR, message="action=error subid=2 no connection"),
        replace(ERROR, level="WARNING"),
        replace(ERROR, name="apply 2/0"),
        replace(ERROR, fields=(("DETAIL", "another"),)),
    ],
)
def test_other_lines_are_written(tmp_path: Path, other: Line) -> None:
    limiter = EqualLines(tmp_path)
    for _ in range(LOG_EQUAL_LINES + 1):
        limiter.admit(ERROR)
    assert limiter.admit(ERROR) == []
    assert limiter.admit(other) == [other]


def test_the_launcher_s_life_is_always_written(tmp_path: Path) -> None:
    ready = replace(ERROR, level="LOG", message="action=ready lake and subscriptions are ready")
    for _ in range(3 * LOG_EQUAL_LINES):
        assert EqualLines(tmp_path).admit(ready) == [ready]


@pytest.mark.parametrize(
    "left", [b"", b"{", b"[]", b'{"a": 1}', b'{"a": {"since": 0, "written": 0, "counted": 3}}']
)
def test_a_file_that_a_power_cut_left_is_begun_anew(tmp_path: Path, left: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(left)
    assert EqualLines(tmp_path).admit(ERROR) == [ERROR]


def test_a_locked_file_and_a_missing_folder_lose_no_line(tmp_path: Path) -> None:
    limiter = EqualLines(tmp_path)
    for _ in range(LOG_EQUAL_LINES):
        limiter.admit(ERROR)
    with (tmp_path / FILE_NAME).open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert limiter.admit(ERROR) == [ERROR]
    assert limiter.admit(ERROR) == []
    assert EqualLines(tmp_path / "missing").admit(ERROR) == [ERROR]


def test_a_clock_that_was_set_back_begins_anew(tmp_path: Path) -> None:
    limiter = EqualLines(tmp_path)
    for _ in range(LOG_EQUAL_LINES + 2):
        limiter.admit(ERROR)
    before = replace(ERROR, created=10.0)
    assert [line.repeated for line in limiter.admit(before)] == [2, 0]


def test_many_texts_keep_the_file_small(tmp_path: Path) -> None:
    limiter = EqualLines(tmp_path)
    for number in range(3 * LOG_EQUAL_TEXTS):
        line = replace(ERROR, message=f"action=table relid={number}")
        assert limiter.admit(line) == [line]
    assert (tmp_path / FILE_NAME).stat().st_size < 100 * LOG_EQUAL_TEXTS


WRITER = """
import logging, sys
from pathlib import Path
from workers.process import log
log.setup("apply 1/0", Path(sys.argv[1]))
for number in range(30):
    logging.getLogger("workers").warning("action=test equal")
"""


def test_processes_share_the_count(tmp_path: Path) -> None:
    for _ in range(3):
        subprocess.run([sys.executable, "-c", WRITER, str(tmp_path)], check=True)
    text = (tmp_path / "log" / "pgsub.log").read_text()
    assert text.count("action=test") == LOG_EQUAL_LINES
