"""What several threads do at a time."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, wait
from typing import TypeVar

T = TypeVar("T")


def results(futures: Iterable[Future[T]]) -> list[T]:
    """Wait for all, then the results, or the first error."""
    futures = list(futures)
    wait(futures)
    return [future.result() for future in futures]
