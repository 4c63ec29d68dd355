"""When literal bounds on the keys are given to a MERGE."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa
import pytest

from workers.lake.connect.session import LakeSession
from workers.lake.sql.key_bounds import FileRanges, KeyRanges, boundable, choose_bounds
from workers.lake.sql.merge import KeyBounds
from workers.lake.staged_rows import Staged
from workers.lake.table import LakeColumn, LakeIdent

COLUMNS = (LakeColumn("id", pa.int64()), LakeColumn("v", pa.string()))


@dataclass(slots=True)
class Server:
    """Answers with ten files of 100,000 rows, 0 to 99, 100 to 199, …"""

    rows: int = 100_000
    asked: list[str] = field(default_factory=list)

    def query(self, sql: str, what: str) -> pa.Table:
        self.asked.append(sql)
        lows = [n * 100 for n in range(10)]
        highs = [low + 99 for low in lows]
        return pa.table({"record_count": [self.rows] * 10, "low": lows, "high": highs})


def choose(server: Server, ranges: KeyRanges, *keys: int | None, key: str = "id") -> Any:
    staged = Staged(len(keys), table=pa.table({"b0": pa.array(keys, pa.int64())}))
    return choose_bounds(cast("LakeSession", server), ranges, (key,), staged)


@pytest.fixture
def ranges() -> KeyRanges:
    return KeyRanges(LakeIdent("s", "t"), COLUMNS, clock=lambda: 0.0)


def test_bounds_are_given_where_they_leave_out_enough(ranges: KeyRanges) -> None:
    server = Server()
    assert choose(server, ranges, 250, 120) == KeyBounds("id", 120, 250)
    assert choose(server, ranges, 0, 599) == KeyBounds("id", 0, 599)
    assert choose(server, ranges, 0, 600) is None
    assert choose(server, ranges, None) is None
    assert len(server.asked) == 1, "the ranges are read once in a while"


def test_none_for_small_tables_and_for_keys_without_an_order(ranges: KeyRanges) -> None:
    assert choose(Server(rows=10), ranges, 1, 2) is None
    server = Server()
    assert choose(server, ranges, 1, 2, key="v") is None
    assert choose_bounds(cast("LakeSession", server), ranges, (), Staged(0)) is None
    assert server.asked == []


def test_ranges_are_read_again_after_a_while() -> None:
    now = [0.0]
    ranges, server = KeyRanges(LakeIdent("s", "t"), COLUMNS, clock=lambda: now[0]), Server()
    for now[0] in (0.0, 59.0, 61.0, 62.0):
        choose(server, ranges, 1)
    assert len(server.asked) == 2


def test_a_file_without_bounds_is_always_touched() -> None:
    ranges = FileRanges([10, 30], [None, 5], [None, 9])
    assert ranges.share(100, 200) == 0.25
    assert ranges.share(9, 200) == 1.0
    assert FileRanges([], [], []).share(1, 2) == 1.0


def test_which_types_have_one_order_everywhere() -> None:
    for type in (pa.int32(), pa.int64(), pa.date32(), pa.timestamp("us")):
        assert boundable(type)
    assert not boundable(pa.string())
    assert datetime.date(1, 1, 1) < datetime.date(2, 1, 1)
