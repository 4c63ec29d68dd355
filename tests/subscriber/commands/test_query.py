import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from subscriber.commands.query import run_sql
from subscriber.printing import Format

TABLE = pa.table(
    [
        pa.array([1, None]),
        pa.array([Decimal("1.50"), Decimal("-0.01")]),
        pa.array([b"\xff\x00", b""]),
        pa.array([datetime(2026, 1, 2, 3, 4, 5, 6), None], pa.timestamp("us")),
        pa.array([datetime(2026, 1, 2, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        pa.array([[1, None], []], pa.list_(pa.int32())),
        pa.array([float("nan"), float("-inf")]),
        pa.array([date(2026, 1, 2), None]),
        pa.array([{"q": Decimal("2.0")}, None]),
        pa.array(["é", 'a"b']),
    ],
    names=["n", "d", "b", "ts", "tz", "l", "f", "day", "s", "n"],
)


@pytest.fixture
def _lake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "workers.lake.connect.user_query.run_query", lambda url, query, close: TABLE
    )


@pytest.mark.usefixtures("_lake")
def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    run_sql("sc://x", "SELECT", Format.JSON)
    first, second = json.loads(capsys.readouterr().out)
    assert first == {
        "n": 1,
        "d": "1.50",
        "b": "\\xff00",
        "ts": "2026-01-02 03:04:05.000006",
        "tz": "2026-01-02 00:00:00+00",
        "l": [1, None],
        "f": "NaN",
        "day": "2026-01-02",
        "s": {"q": "2.0"},
        "n_2": "é",
    }
    assert (second["f"], second["l"], second["s"], second["n_2"]) == ("-Infinity", [], None, 'a"b')


@pytest.mark.usefixtures("_lake")
def test_table_and_csv(capsys: pytest.CaptureFixture[str]) -> None:
    run_sql("sc://x", "SELECT", Format.TABLE)
    assert ' | {"q": "2.0"} | é' in capsys.readouterr().out
    run_sql("sc://x", "SELECT", Format.CSV)
    assert capsys.readouterr().out.startswith("n,d,b,ts,tz,l,f,day,s,n_2\n1,1.50,")


def test_statement_without_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "workers.lake.connect.user_query.run_query", lambda url, query, close: pa.table({})
    )
    run_sql("sc://x", "DROP TABLE x", Format.TABLE)
    assert capsys.readouterr().out == ""
