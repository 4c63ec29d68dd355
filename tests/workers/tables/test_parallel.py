"""All calls end before the first error is raised."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from workers.tables.parallel import InThreads, wait_for_all


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


def test_calls_run_in_threads_and_answer_in_order() -> None:
    both = threading.Barrier(2, timeout=20)

    def meet(number: int) -> int:
        both.wait()
        return number

    with ThreadPoolExecutor(2) as threads:
        in_parallel = InThreads(threads)
        assert in_parallel([partial(meet, 1), partial(meet, 2)]) == [1, 2]
        assert in_parallel([]) == []
