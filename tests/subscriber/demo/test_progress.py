"""The demo's measurements."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.pg_lsn import LSN
from subscriber.demo.progress import Meter


def test_rates_and_lag_are_those_of_the_confirmed_position(tmp_path: Path) -> None:
    now, lsn, confirmed, rows = 0.0, 100, 100, 0
    meter = Meter(
        tmp_path,
        "sub",
        {"t": 10},
        lambda: (LSN(lsn), LSN(confirmed)),
        lambda: rows,
        clock=lambda: now,
    )
    assert meter.read().lag_seconds == 0.0
    for step in range(1, 5):  # a second and 100 rows each; nothing is confirmed
        now, lsn, rows = float(step), 100 + 10 * step, 100 * step
        reading = meter.read()
    assert (reading.lag_bytes, reading.lag_seconds, reading.applied_rate) == (40, 3.0, 0.0)
    now, confirmed = 5.0, 130
    reading = meter.read()
    assert (reading.lag_bytes, reading.lag_seconds) == (10, 1.0)
    assert reading.applied_rate == pytest.approx(100.0)  # 300 rows in the last 3 s
    assert reading.phase == "starting"
    assert not reading.is_synced
