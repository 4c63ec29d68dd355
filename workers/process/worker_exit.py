"""How a worker ends: on purpose, or with what exit status."""

from __future__ import annotations

from typing import Final

EXIT_DONE: Final = 0
EXIT_ERROR: Final = 1
EXIT_GAP: Final = 3
"""A ``ReplicationGap``: no use to try again soon."""


class WorkerExit(Exception):  # noqa: N818 (ending on purpose is no error)
    """The worker's work is over; the launcher may start another one at once."""
