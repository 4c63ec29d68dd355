"""Parallel calls to the lake, on the worker's threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future, wait
from typing import TypeVar

from workers.lake.publication import InParallel

T = TypeVar("T")


def wait_for_all(futures: Iterable[Future[T]]) -> list[T]:
    """Wait for all calls; return the results, or raise the first error."""
    futures = list(futures)
    wait(futures)
    return [future.result() for future in futures]


class InThreads(InParallel):
    """Runs calls on an executor's threads, and waits for all."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads

    def __call__(self, calls: Iterable[Callable[[], T]]) -> list[T]:
        """The results, in order; the first error."""
        return wait_for_all([self._threads.submit(call) for call in calls])
