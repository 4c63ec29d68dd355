"""Parallel calls to the lake, on the worker's threads."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, wait
from typing import TypeVar

T = TypeVar("T")


def wait_for_all(futures: Iterable[Future[T]]) -> list[T]:
    """Wait for all calls; return the results, or raise the first error."""
    futures = list(futures)
    wait(futures)
    return [future.result() for future in futures]
