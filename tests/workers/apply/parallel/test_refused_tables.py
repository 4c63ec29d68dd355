"""A refusal is remembered for an hour, and no longer."""

from __future__ import annotations

import logging

import pytest

from config.monitor_limits import PARALLEL_REFUSED_SECONDS
from workers.apply.parallel.refused_tables import RefusedTables


def test_a_refusal_is_remembered_for_an_hour(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    tables = RefusedTables(lambda: now[0])
    assert 5 not in tables
    with caplog.at_level(logging.INFO):
        tables.note(1, {5, 6})
        tables.note(1, ())
    assert [record.args for record in caplog.records] == [(1, 5), (1, 6)]
    now[0] = PARALLEL_REFUSED_SECONDS - 1
    tables.note(1, {6})
    now[0] += 1
    assert (5 in tables, 6 in tables, 7 in tables) == (False, True, False)
    now[0] += PARALLEL_REFUSED_SECONDS
    assert 6 not in tables


def test_the_last_refusal_counts() -> None:
    now = [0.0]
    tables = RefusedTables(lambda: now[0])
    tables.note(1, {5})
    now[0] = PARALLEL_REFUSED_SECONDS / 2
    tables.note(1, {5})
    now[0] = PARALLEL_REFUSED_SECONDS
    assert 5 in tables
