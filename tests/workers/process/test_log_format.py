"""A line as text and as JSON, from one record."""

from __future__ import annotations

import json
import logging
from typing import Any

from workers.process.log_format import Line, as_json, as_text, line_of, timestamp


def line(message: str, name: str = "apply 16384/0", **given: Any) -> Line:
    return Line(name, 1763698540.871, 415, "ERROR", message, **given)


ERROR = line(
    "action=error subid=16384 relid=0 sqlstate=55006 it is used",
    fields=(("DETAIL", "By\nPID 1."), ("HINT", "Wait."), ("CONTEXT", "while testing")),
)


def test_json_has_the_keys_of_postgresql_and_ours() -> None:
    assert json.loads(as_json(ERROR)) == {
        "timestamp": "2025-11-21 04:15:40.871 UTC",
        "pid": 415,
        "error_severity": "ERROR",
        "state_code": "55006",
        "message": "it is used",
        "detail": "By\nPID 1.",
        "hint": "Wait.",
        "context": "while testing",
        "backend_type": "logical replication apply worker",
        "application_name": "apply 16384/0",
        "action": "error",
        "subid": 16384,
        "relid": 0,
    }


def test_a_workers_name_gives_subid_and_relid() -> None:
    entry = json.loads(as_json(line("action=copied lsn=0/1A rows=5 done", "tablesync 16384/16390")))
    assert (entry["subid"], entry["relid"], entry["lsn"], entry["rows"]) == (
        16384,
        16390,
        "0/1A",
        5,
    )
    assert entry["backend_type"] == "logical replication tablesync worker"


def test_a_worker_s_pid_in_a_message_is_not_the_writer_s() -> None:
    entry = json.loads(as_json(line("action=worker_start pid=99 has started", "launcher")))
    assert (entry["pid"], entry["worker_pid"]) == (415, 99)
    assert entry["backend_type"] == "logical replication launcher"


def test_a_message_cannot_forge_a_key_or_a_line() -> None:
    text = as_json(
        line('action=error subid=1 message=x pid=2 table "a\n\x1b[1A\u2028\udc80" is used')
    )
    assert text.isascii()
    assert "\n" not in text
    entry = json.loads(text)
    assert (entry["pid"], entry["action"]) == (415, "error")
    assert entry["message"] == 'table "a\n\x1b[1A\u2028\udc80" is used'


def test_a_message_without_named_values_is_the_message() -> None:
    assert json.loads(as_json(line("streaming = on runs as off", "x")))["message"] == (
        "streaming = on runs as off"
    )


def test_text_has_a_line_for_every_field() -> None:
    prefix = "2025-11-21 04:15:40.871 UTC [415] apply 16384/0 "
    assert as_text(ERROR).splitlines() == [
        prefix + "ERROR:  action=error subid=16384 relid=0 sqlstate=55006 it is used",
        prefix + "DETAIL:  By",
        "\tPID 1.",
        prefix + "HINT:  Wait.",
        prefix + "CONTEXT:  while testing",
    ]


def test_a_count_is_shown_in_both_formats() -> None:
    counted = line("action=error it is used", repeated=7)
    assert as_text(counted).endswith("CONTEXT:  7 more equal lines were counted and not written.")
    assert json.loads(as_json(counted))["repeated"] == 7


def test_a_record_becomes_a_line() -> None:
    record = logging.makeLogRecord(
        {"levelno": logging.WARNING, "msg": "action=x n=%d", "args": (3,), "HINT": "More."}
    )
    found = line_of("launcher", record)
    assert (found.level, found.message, found.fields) == (
        "WARNING",
        "action=x n=3",
        (("HINT", "More."),),
    )


def test_times_have_milliseconds() -> None:
    assert timestamp(0.0625) == "1970-01-01 00:00:00.062 UTC"
