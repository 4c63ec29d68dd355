"""The work of a process, counted; and sums over processes."""

from __future__ import annotations

import threading

import pytest

from workers.process.work_done import BUCKETS, LAKE, WorkDone, counters, total


def test_sums_by_operation() -> None:
    done = WorkDone()
    done.count(2, {"rows": {"insert": 3}})
    done.count(1, {"rows": {"insert": 1, "delete": 4}, "unchanged_toast_values": 5})
    assert done.sums() == {
        "transactions": 3,
        "received_bytes": 0,
        "rows": {"insert": 4, "delete": 4},
        "unchanged_toast_values": 5,
        "durations": {},
    }


def test_a_duration_falls_into_the_bucket_of_its_upper_bound() -> None:
    done = WorkDone()
    for seconds in (0.0, BUCKETS[0], 0.011, 1000.0):
        done.observe("batch", seconds)
    found = done.sums()["durations"]["batch"]
    assert found["counts"] == [2, 1, *[0] * (len(BUCKETS) - 2), 1]
    assert found["sum"] == pytest.approx(1000.021)


def test_a_step_that_fails_is_not_measured() -> None:
    done = WorkDone()
    with pytest.raises(ValueError, match="lost"), done.timed("publish"):
        raise ValueError("lost")
    with done.timed("publish"):
        pass
    assert sum(done.sums()["durations"]["publish"]["counts"]) == 1


def test_a_second_stream_of_a_process_counts_on() -> None:
    """A stream that starts again as text begins to count its bytes at 0."""
    done = WorkDone()
    for of_stream in (100, 250, 250, 40, 50):
        done.received(of_stream)
    assert done.sums()["received_bytes"] == 300


def test_figures_of_the_lake_are_no_sums() -> None:
    assert counters({"transactions": 3, LAKE: {"data_files": 5}}) == {"transactions": 3}
    assert counters(None) is None


def test_sums_of_several_processes() -> None:
    first, second = WorkDone(), WorkDone()
    first.count(1, {"rows": {"insert": 1}})
    second.count(2, {"rows": {"update": 1}})
    first.observe("batch", 1.0)
    second.observe("batch", 2.0)
    both = total(first.sums(), second.sums())
    assert both["transactions"] == 3
    assert both["rows"] == {"insert": 1, "update": 1}
    assert both["durations"]["batch"]["sum"] == 3.0
    assert sum(both["durations"]["batch"]["counts"]) == 2
    assert total(None, both) == total(both, None) == both


def test_threads_lose_no_count() -> None:
    done = WorkDone()

    def work() -> None:
        for _ in range(2000):
            done.count(1, {"rows": {"insert": 1}})
            done.observe("batch", 0.1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done.sums()["transactions"] == 8000
    assert sum(done.sums()["durations"]["batch"]["counts"]) == 8000
