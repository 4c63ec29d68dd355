"""Waiting for something to become true: the only place in the tests that pauses."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

PAUSE = 0.05


def wait_until(
    predicate: Callable[[], T | None],
    timeout: float = 60.0,
    what: str | Callable[[], Any] = "the condition",
    *,
    pause: float = PAUSE,
) -> T:
    """Call the predicate until it answers something true, and return that.

    Fails with ``what`` (text, or a function that says how things stand) after ``timeout`` seconds.
    """
    deadline = time.monotonic() + timeout
    while True:
        answer = predicate()
        if answer:
            return answer
        if time.monotonic() > deadline:
            said = what() if callable(what) else what
            raise AssertionError(f"not within {timeout:g} s: {said} (last answer: {answer!r})")
        time.sleep(pause)
