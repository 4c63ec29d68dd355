"""The exit statuses of a worker, and the exception that ends a worker on purpose."""

from __future__ import annotations

from typing import Final

EXIT_DONE: Final = 0
EXIT_ERROR: Final = 1
EXIT_GAP: Final = 3
"""A ``ReplicationGap``: a new attempt soon would fail, too."""
EXIT_REPEATED: Final = 4
"""The error of the predecessor once more: the launcher waits longer and longer."""


class WorkerExit(Exception):  # noqa: N818 (ending on purpose is no error)
    """The worker's work is over; the launcher may start a successor at once."""
