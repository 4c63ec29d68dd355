from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from catalog.pg_lsn import LSN
from tests.bench.figures import (
    arrivals,
    entry_of,
    lag_growth,
    largest_memory,
    median,
    p95,
    thinned,
    verdicts,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def later(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def test_the_middle_run_counts_with_all_it_took() -> None:
    runs = [{"s": 3.0, "cpu_s": 1.0}, {"s": 1.0, "cpu_s": 9.0}, {"s": 2.0, "cpu_s": 5.0}]
    assert median(runs) == {"s": 2.0, "cpu_s": 5.0, "runs_s": [3.0, 1.0, 2.0]}


def test_one_in_twenty_is_slower_than_the_95th_percentile() -> None:
    delays = [float(n) for n in range(100)]
    assert sum(delay > p95(delays) for delay in delays) == 5


def test_a_position_is_seen_from_the_first_move_behind_it_on() -> None:
    moves = [(later(1), LSN(100)), (later(2), LSN(200)), (later(3), LSN(300))]
    positions = [LSN(90), LSN(100), LSN(150), LSN(299)]
    assert arrivals(moves, positions) == [later(1), later(2), later(2), later(3)]


def test_a_position_that_is_never_seen_is_an_error() -> None:
    with pytest.raises(AssertionError, match=r"never seen: 0/64 and 1 more"):
        arrivals([(later(1), LSN(100))], [LSN(50), LSN(100), LSN(200)])


def test_a_steady_lag_does_not_grow_and_a_growing_one_does() -> None:
    saw = [float(n % 10) for n in range(900)]
    assert lag_growth(saw) == 1.0
    assert lag_growth([each + n / 100 for n, each in enumerate(saw)]) > 1.3
    assert lag_growth([8.0] * 300 + [2.0] * 600) == 1.0  # what settles at first is left out


@pytest.mark.parametrize(("many", "most", "left"), [(7, 3, 3), (6, 3, 3), (2, 60, 2), (0, 60, 0)])
def test_thin_points_keep_the_peaks(many: int, most: int, left: int) -> None:
    points = [(n * 0.25, float(n), 10.0 - n) for n in range(many)]
    thin = thinned(points, most)
    assert len(thin) == left
    if points:
        assert thin[0][0] == 0.0
        assert max(row[1] for row in thin) == many - 1
        assert max(row[2] for row in thin) == 10.0


def test_an_entry_has_both_sides_and_what_follows() -> None:
    figures = {
        "ours": {"s": 2.0, "create_s": 4.0, "cpu_s": 4.0},
        "native": {"s": 3.0, "create_s": 0.0, "cpu_s": 2.0},
    }
    assert entry_of("copy", figures, rows=1000) == {
        "case": "copy",
        "ours_s": 2.0,
        "ours_create_s": 4.0,
        "ours_cpu_s": 4.0,
        "native_s": 3.0,
        "native_create_s": 0.0,
        "native_cpu_s": 2.0,
        "ratio": 1.5,
        "ratio_with_create": 0.5,
        "ours_rows_per_cpu_s": 250,
        "native_rows_per_cpu_s": 500,
        "rows": 1000,
    }


def test_an_entry_of_one_side_has_no_ratio() -> None:
    assert entry_of("first_row", {"ours": {"s": 9.0}}) == {"case": "first_row", "ours_s": 9.0}


def test_a_verdict_for_each_target_that_was_measured() -> None:
    targets = [
        {"case": "a", "figure": "ratio", "at_least": 2.0},
        {"case": "a", "figure": "ours_s", "at_most": 1.0},
        {"case": "a", "figure": "ours_mb", "at_most": 512},
        {"case": "b", "figure": "ratio", "at_least": 1.0},
    ]
    entry = {"case": "a", "ratio": 2.0, "ours_s": 1.1, "ours_mb": None}
    assert verdicts(entry, targets) == [
        {"figure": "ratio", "at_least": 2.0, "met": True},
        {"figure": "ours_s", "at_most": 1.0, "met": False},
    ]


def test_the_larger_memory_of_two_runs() -> None:
    one = {"s": 1, "rss_mb": {"apply worker": 5.0, "launcher": 2.0}, "python_mb": 7.0}
    other = {"s": 2, "rss_mb": {"apply worker": 4.0, "sync worker": 3.0}, "python_mb": 8.0}
    largest = {"apply worker": 5.0, "launcher": 2.0, "sync worker": 3.0}
    assert largest_memory(one, other) == {"rss_mb": largest, "python_mb": 8.0}
