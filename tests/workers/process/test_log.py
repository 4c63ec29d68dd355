"""Log lines: PostgreSQL's shape, one file, no foreign voices."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from catalog.errcodes import IoError, ObjectInUse
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
