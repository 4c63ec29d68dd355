import csv
import io
import json
import os
from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from catalog.pg_lsn import LSN
from subscriber.printing import (
    Format,
    as_text_table,
    json_value,
    print_rows,
    text_value,
    window_width,
)

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
SAMPLE = [
    {"n": 1, "name": 'a "b"', "lsn": LSN(255), "on": True, "list": ("x", "y z", None), "t": None},
    {"n": 22, "name": "é", "lsn": None, "on": False, "list": (), "t": NOON},
]
COLUMNS = ("n", "name", "lsn", "on", "list", "t")


def printed(form: Format) -> str:
    out = io.StringIO()
    print_rows(COLUMNS, SAMPLE, form, out)
    return out.getvalue()


def test_json() -> None:
    assert json.loads(printed(Format.JSON)) == [
        {"n": 1, "name": 'a "b"', "lsn": "0/FF", "on": True, "list": ["x", "y z", None], "t": None},
        {
            "n": 22,
            "name": "é",
            "lsn": None,
            "on": False,
            "list": [],
            "t": "2026-01-02 12:00:00+00",
        },
    ]


def test_csv() -> None:
    assert list(csv.reader(io.StringIO(printed(Format.CSV)))) == [
        list(COLUMNS),
        ["1", 'a "b"', "0/FF", "t", '{x,"y z",NULL}', ""],
        ["22", "é", "", "f", "{}", "2026-01-02 12:00:00+00"],
    ]


def test_table() -> None:
    assert printed(Format.TABLE) == (
        " n  | name  | lsn  | on |      list      |           t\n"
        "----+-------+------+----+----------------+------------------------\n"
        '  1 | a "b" | 0/FF | t  | {x,"y z",NULL} |\n'
        " 22 | é     |      | f  | {}             | 2026-01-02 12:00:00+00\n"
        "(2 rows)\n"
    )
    assert as_text_table(("a",), [{"a": 1}]).endswith("(1 row)\n")


def test_a_table_wider_than_the_window_is_folded_and_nothing_is_lost() -> None:
    assert as_text_table(COLUMNS, SAMPLE, 70) == printed(Format.TABLE)
    assert as_text_table(COLUMNS, SAMPLE, 24) == (
        "-[ RECORD 1 ]-----------\n"
        "n    | 1\n"
        'name | a "b"\n'
        "lsn  | 0/FF\n"
        "on   | t\n"
        'list | {x,"y z",NULL}\n'
        "t    |\n"
        "-[ RECORD 2 ]-----------\n"
        "n    | 22\n"
        "name | é\n"
        "lsn  |\n"
        "on   | f\n"
        "list | {}\n"
        "t    | 2026-01-02\n"
        "     | 12:00:00+00\n"
        "(2 rows)\n"
    )


@given(st.text("ab -", max_size=60), st.integers(1, 80))
def test_a_folded_value_can_be_put_together_again(value: str, width: int) -> None:
    lines = as_text_table(("column",), [{"column": value}], width).splitlines()
    if "RECORD" in lines[0] or lines[0].startswith("-["):
        parts = [line.partition(" |")[2] for line in lines[1:-1]]
        assert "".join("".join(parts).split()) == "".join(value.split())
        assert all(len(line) <= max(width, len("column | a")) for line in lines[:-1])


def test_an_empty_table_stays_a_table() -> None:
    assert as_text_table(COLUMNS, [], 10).endswith("(0 rows)\n")
    assert "RECORD" not in as_text_table(COLUMNS, [], 10)


def test_what_is_no_terminal_has_no_width() -> None:
    assert window_width(io.StringIO()) is None
    with open(os.devnull) as file:
        assert window_width(file) is None


def test_values() -> None:
    local = datetime(2026, 1, 2, 3, 4, 5, 600, timezone(timedelta(hours=5, minutes=30)))
    assert text_value(local) == "2026-01-02 03:04:05.000600+05:30"
    assert json_value([LSN(1), (2,)]) == ["0/1", [2]]
    assert text_value(("", "null", "a,b", "\\")) == '{"","null","a,b","\\\\"}'


def test_a_name_is_one_cell_of_a_table() -> None:
    lines = as_text_table(("a\x1b[2J",), [{"a\x1b[2J": "new\nline\ttab\r"}]).splitlines()
    assert len(lines) == 4
    assert lines[0].strip() == "a\\x1B[2J"
    assert lines[2] == " new\\nline\\ttab\\x0D"
