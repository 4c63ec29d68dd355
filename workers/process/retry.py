"""How long a worker waits that ends with the same error as the worker before. Pure.

PostgreSQL starts a failed worker again in a steady interval, ``wal_retrieve_retry_interval``. A
life of a worker costs more here. So the interval doubles with every worker that ends with the error
of its predecessor, up to ``REPEATED_ERROR_RETRY_SECONDS``. Every change that a user makes, and
every success, brings the interval back. The wait is never longer than the time the error has been
there already, so a cause that goes by itself costs at most as much time again.

Trace, interval 5 s: the error at 0, then at 5; the same error at 5 doubles the wait::

    0  5  15  35  75  155  315  495  675 ...

Errors of a connection keep the steady interval, and so do locks and slots that another process
holds: the publisher restarts, and should be followed at once. A store or a catalog of the lake that
cannot be reached is waited for longer and longer: a life of a worker asks both for every table.
"""

from __future__ import annotations

from typing import Final

from catalog.errcodes import (
    LOCK_NOT_AVAILABLE,
    OBJECT_IN_USE,
    PROTOCOL_VIOLATION,
    SERIALIZATION_FAILURE,
    UNABLE_TO_CONNECT,
)
from config.limits import REPEATED_ERROR_RETRY_SECONDS

_STEADY: Final = (OBJECT_IN_USE, LOCK_NOT_AVAILABLE, SERIALIZATION_FAILURE)
_STEADY_CLASSES: Final = ("08", "57")


def retries_steadily(sqlstate: str) -> bool:
    """Does a worker with the error start again in a steady interval?"""
    slow = sqlstate in (PROTOCOL_VIOLATION, UNABLE_TO_CONNECT)
    connection = sqlstate[:2] in _STEADY_CLASSES and not slow
    return connection or sqlstate in _STEADY


def retry_delay(interval: float, repeats: int) -> float:
    """The seconds until the next attempt after ``repeats`` workers with the predecessor's error."""
    doublings = min(repeats, 60)
    return max(interval, min(interval * 2.0**doublings, REPEATED_ERROR_RETRY_SECONDS))
