"""Dates and times in binary form as PostgreSQL prints them with DateStyle ISO."""

from __future__ import annotations

import datetime as dt
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.columnar.binary.sent_values import DATE, check_damaged, texts

TIME, TIMETZ, TIMESTAMP, TIMESTAMPTZ, INTERVAL = 1083, 1266, 1114, 1184, 1186
HOUR = 3_600_000_000
DAY = 24 * HOUR

DAMAGED: list[tuple[int, bytes, str]] = [
    (DATE, struct.pack(">i", 0x7FFFFFFE), "22008"),
    (TIMESTAMP, struct.pack(">q", -(2**62)), "22008"),
    (TIME, struct.pack(">q", -1), "22008"),
    (TIMETZ, struct.pack(">qi", 0, 16 * 3600), "22008"),
]


@pytest.mark.parametrize(("oid", "sent", "sqlstate"), DAMAGED)
def test_014_a_damaged_value_has_postgresql_s_error(oid: int, sent: bytes, sqlstate: str) -> None:
    check_damaged(oid, sent, sqlstate)


@pytest.mark.parametrize(
    ("oid", "sent", "text"),
    [
        (DATE, struct.pack(">i", 0x7FFFFFFF), "infinity"),
        (DATE, struct.pack(">i", -0x80000000), "-infinity"),
        (DATE, struct.pack(">i", -730_119), "0001-01-01"),
        (DATE, struct.pack(">i", -730_120), "0001-12-31 BC"),
        (DATE, struct.pack(">i", 2_921_940), "10000-01-01"),
        (TIMESTAMP, struct.pack(">q", 2**63 - 1), "infinity"),
        (TIMESTAMP, struct.pack(">q", -(2**63)), "-infinity"),
        (TIMESTAMP, struct.pack(">q", -1), "1999-12-31 23:59:59.999999"),
        (TIMESTAMP, struct.pack(">q", -730_120 * DAY + 12 * HOUR), "0001-12-31 12:00:00 BC"),
        (TIMESTAMPTZ, struct.pack(">q", 500_000), "2000-01-01 00:00:00.5+00"),
        (TIME, struct.pack(">q", 24 * HOUR), "24:00:00"),
        (TIME, struct.pack(">q", 1_000), "00:00:00.001"),
        (TIMETZ, struct.pack(">qi", HOUR, -5 * 3600 - 1800), "01:00:00+05:30"),
        (TIMETZ, struct.pack(">qi", HOUR, 3 * 3600 + 12 * 60 + 1), "01:00:00-03:12:01"),
        (INTERVAL, struct.pack(">qii", 0, 0, 0), "00:00:00"),
        (INTERVAL, struct.pack(">qii", HOUR, 2, 14), "1 year 2 mons 2 days 01:00:00"),
        (INTERVAL, struct.pack(">qii", HOUR, -1, 1), "1 mon -1 days +01:00:00"),
        (INTERVAL, struct.pack(">qii", -500_000, 0, -12), "-1 years -00:00:00.5"),
    ],
)
def test_a_time_is_printed_as_postgresql_prints_it(oid: int, sent: bytes, text: str) -> None:
    assert texts(oid, None, sent) == [None, text]


@settings(deadline=None)
@given(st.datetimes())
def test_any_instant_of_the_common_era_is_its_iso_text(instant: dt.datetime) -> None:
    micros = (instant - dt.datetime(2000, 1, 1)) // dt.timedelta(microseconds=1)
    whole = f"{instant.replace(microsecond=0).isoformat(' ')}"
    fraction = f".{instant.microsecond:06}".rstrip("0").rstrip(".")
    assert texts(TIMESTAMP, struct.pack(">q", micros)) == [whole + fraction]
    assert texts(DATE, struct.pack(">i", micros // DAY)) == [instant.date().isoformat()]
