"""How a worker ends on purpose."""

from __future__ import annotations


class WorkerExit(Exception):  # noqa: N818 (ending on purpose is no error)
    """The worker's work is over; the launcher may start another one at once."""
