"""All calls end before the first error is raised."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from workers.tables.parallel import wait_for_all


def test_results_come_in_the_order_of_the_calls() -> None:
    with ThreadPoolExecutor(3) as threads:
        assert wait_for_all(threads.submit(pow, n, 2) for n in range(5)) == [0, 1, 4, 9, 16]


def test_a_call_that_is_under_way_ends_before_an_error_is_raised() -> None:
    failed, ended = threading.Event(), threading.Event()

    def fail() -> None:
        failed.set()
        raise ValueError("first")

    def go_on() -> None:
        assert failed.wait(20)
        ended.set()

    with ThreadPoolExecutor(2) as threads:
        with pytest.raises(ValueError, match="first"):
            wait_for_all([threads.submit(fail), threads.submit(go_on)])
        assert ended.is_set()
