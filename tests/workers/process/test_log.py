"""Log lines: PostgreSQL's shape, one file, no foreign voices."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from catalog.errcodes import IoError, ObjectInUse
from config.monitor_limits import (
    LOG_EQUAL_LINES,
)
from workers.process import log

LINE = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC \[\d+\] apply 1/0 (LOG|WARNING|ERROR|HINT): {2}.*"
)


pytestmark = pytest.mark.usefixtures("quiet_afterwards")


def lines(data_dir: Path) -> list[str]:
    return (data_dir / "log" / "pgsub.log").read_text().splitlines()


def test_lines_have_time_pid_name_and_level(tmp_path: Path) -> None:
    log.setup("apply 1/0", tmp_path)
    logging.getLogger("workers.apply.worker").info("action=start subid=%d", 1)
    logging.getLogger("subscriber.launcher.launcher").warning(
        "action=no_slot", extra={"HINT": "More."}
    )
    got = lines(tmp_path)
    assert [match[1] for line in got if (match := LINE.fullmatch(line))] == [
        "LOG",
        "WARNING",
        "HINT",
    ]


def test_an_error_has_its_fields_on_lines_of_their_own(tmp_path: Path) -> None:
    log.setup("apply 1/0", tmp_path)
    error = ObjectInUse("it is used", detail="By\nPID 1.", hint="Wait.")
    error.context.append("while testing")
    log.report(error, subid=1, relid=2)
    said = [line.partition("apply 1/0 ")[2] or line for line in lines(tmp_path)]
    assert said == [
        "ERROR:  action=error subid=1 relid=2 sqlstate=55006 it is used",
        "DETAIL:  By",
        "\tPID 1.",
        "HINT:  Wait.",
        "CONTEXT:  while testing",
    ]


def test_a_name_cannot_forge_a_line(tmp_path: Path) -> None:
    log.setup("apply 1/0", tmp_path)
    forged = "2026-11-21 04:15:39.123 UTC [1] launcher LOG:  action=stop"
    log.report(ObjectInUse(f'table "a\r\n{forged}\x1b[1A" is used'))
    [first, second] = (tmp_path / "log" / "pgsub.log").read_text().splitlines()
    assert first.endswith('table "a\\x0D')
    assert second == f'\t{forged}\\x1B[1A" is used'


def test_libraries_are_silent(tmp_path: Path) -> None:
    log.setup("apply 1/0", tmp_path)
    logging.getLogger("pyspark.sql").error("row (secret)")
    logging.getLogger("workersomething").error("row (secret)")
    assert lines(tmp_path) == []


def test_setting_up_again_replaces(tmp_path: Path) -> None:
    log.setup("first", tmp_path)
    log.setup("second", tmp_path)
    logging.getLogger("workers.x").info("once")
    assert len(lines(tmp_path)) == 1
    assert " second LOG:  once" in lines(tmp_path)[0]


def test_the_file_is_private(tmp_path: Path) -> None:
    log.setup("first", tmp_path)
    assert (tmp_path / "log" / "pgsub.log").stat().st_mode & 0o777 == 0o600


def test_a_log_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("not a folder")
    with pytest.raises(IoError, match="could not open log file"):
        log.setup("first", tmp_path)


def test_a_large_file_is_renamed_and_the_oldest_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "LOG_FILE_BYTES", 1000)
    monkeypatch.setattr(log, "LOG_KEPT_FILES", 2)
    log.setup("apply 1/0", tmp_path)
    for number in range(100):
        logging.getLogger("workers").info("action=test number=%d", number)
    files = sorted(path.name for path in (tmp_path / "log").glob("pgsub.log*"))
    assert files == ["pgsub.log", "pgsub.log.1", "pgsub.log.2"]
    assert all(path.stat().st_size < 1200 for path in (tmp_path / "log").glob("pgsub.log*"))
    assert lines(tmp_path)[-1].endswith("number=99")


WRITER = """
import logging, sys
from pathlib import Path
from workers.process import log
log.LOG_FILE_BYTES, log.LOG_KEPT_FILES = 20_000, 1000
log.setup("apply 1/0", Path(sys.argv[1]))
for number in range(2000):
    logging.getLogger("workers").info("action=test writer=%s number=%d", sys.argv[2], number)
"""


def test_no_line_of_several_processes_is_lost_at_a_rotation(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(each)], stderr=subprocess.DEVNULL
        )
        for each in range(3)
    ]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    files = list((tmp_path / "log").glob("pgsub.log*"))
    found = [line for path in files for line in path.read_text().splitlines()]
    assert len(files) > 5
    assert {re.sub(".*(writer=.*)", r"\1", line) for line in found} == {
        f"writer={each} number={number}" for each in range(3) for number in range(2000)
    }
    assert len(found) == 6000


def test_a_worker_s_standard_error_follows_the_file(tmp_path: Path) -> None:
    """The last words of an interpreter go there."""
    script = WRITER + "print('last words', file=sys.stderr, flush=True)"
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path), "0"],
        env={**os.environ, log.CONSOLE_ENV: "2"},
        stderr=subprocess.PIPE,
        check=True,
    )
    assert b"last words" not in done.stderr
    assert lines(tmp_path)[-1] == "last words"


def test_a_file_that_somebody_removed_is_made_anew(tmp_path: Path) -> None:
    log.setup("apply 1/0", tmp_path)
    (tmp_path / "log" / "pgsub.log").unlink()
    logging.getLogger("workers").info("action=test")
    assert len(lines(tmp_path)) == 1


def test_json_lines_are_objects_and_equal_lines_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(log.FORMAT_ENV, "json")
    log.setup("apply 1/0", tmp_path)
    error = ObjectInUse("it is used", hint="Wait.")
    for _ in range(100):
        log.report(error, subid=1, relid=0)
    entries = [json.loads(line) for line in lines(tmp_path)]
    assert len(entries) == LOG_EQUAL_LINES
    assert {(each["action"], each["state_code"], each["hint"]) for each in entries} == {
        ("error", "55006", "Wait.")
    }


def test_the_format_changes_without_a_new_set_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(log.FORMAT_ENV, "text")
    log.setup("apply 1/0", tmp_path)
    for form in ("json", "text"):
        log.use_format(form)
        logging.getLogger("workers").info("action=test form=%s", form)
    first, second = lines(tmp_path)
    assert json.loads(first)["form"] == "json"
    assert LINE.fullmatch(second)
