"""Count the work of a worker process, for metrics: transactions, rows, bytes and durations.

A worker counts in memory and reports the sums to the launcher with its positions. The launcher adds
the sums of ended workers (``total``): so a sum never falls when a worker starts again. The
launcher's own end begins every sum anew, as readers of such counters expect. A killed worker takes
the counts of its last tenth of a second along.

The sums are plain data, ready for the launcher's socket::

    {"transactions": 3, "received_bytes": 4096, "rows": {"insert": 7, "delete": 1},
     "unchanged_toast_values": 2,
     "durations": {"batch": {"sum": 0.31, "counts": [0, 0, 1, 2, 0, …]}}}

``counts`` has a number for each of ``BUCKETS``, and one for durations above.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the durations, in seconds: a small commit takes 30 ms, a large batch minutes."""

OPERATIONS: Final = ("insert", "update", "delete", "truncate")
LAKE: Final = "lake"
"""The key of figures that are no sums of work: the files of the lake's tables (``TableTotals``)."""
DURATIONS: Final = ("batch", "lake_commit", "publish")


class WorkDone:
    """The sums of one process; any thread may count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._transactions = 0
        self._changes: Any = {"rows": {}, "unchanged_toast_values": 0}
        self._durations: dict[str, dict[str, Any]] = {}
        self._received_bytes = 0
        self._received_of_stream = 0

    def count(self, transactions: int, changes: Mapping[str, Any]) -> None:
        """Count applied transactions, and their changes: rows by operation, values not sent."""
        with self._lock:
            self._transactions += transactions
            self._changes = total(self._changes, changes)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Measure a step that succeeds; a failed step is no measure of the lake's speed."""
        began = time.monotonic()
        yield
        self.observe(name, time.monotonic() - began)

    def observe(self, name: str, seconds: float) -> None:
        """Count a duration."""
        with self._lock:
            found = self._durations.setdefault(
                name, {"sum": 0.0, "counts": [0] * (len(BUCKETS) + 1)}
            )
            found["sum"] += seconds
            found["counts"][bisect_left(BUCKETS, seconds)] += 1

    def received(self, of_stream: int) -> None:
        """Take over the bytes of the present stream so far; a new stream begins at 0."""
        with self._lock:
            before = self._received_of_stream
            self._received_bytes += of_stream - before if of_stream >= before else of_stream
            self._received_of_stream = of_stream

    def sums(self) -> dict[str, Any]:
        """The sums so far."""
        with self._lock:
            durations = {
                name: {"sum": round(each["sum"], 6), "counts": list(each["counts"])}
                for name, each in self._durations.items()
            }
            return {
                "transactions": self._transactions,
                "received_bytes": self._received_bytes,
                **self._changes,
                "durations": durations,
            }


DONE: Final = WorkDone()
"""The sums of this process: a process works for one worker."""


def counters(work: Any) -> Any:
    """The sums of a worker without the figures of the lake, which nobody adds up."""
    return None if work is None else {key: each for key, each in work.items() if key != LAKE}


def total(first: Any, second: Any) -> Any:
    """The sum of two results of ``sums``, number by number; None counts as nothing."""
    if first is None or second is None:
        return second if first is None else first
    if isinstance(first, Mapping):
        return {key: total(first.get(key), second.get(key)) for key in {**first, **second}}
    if isinstance(first, list):
        return [total(left, right) for left, right in zip(first, second, strict=True)]
    return first + second
