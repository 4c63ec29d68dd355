"""How a worker ends on purpose."""

from __future__ import annotations


class WorkerExit(Exception):
    """The worker's work is over; the launcher may start another one at once."""
