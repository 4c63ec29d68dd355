"""Let a child process end with its parent, through the kernel (Linux only).

Without the launcher no worker goes on and keeps a replication slot busy. Elsewhere than on Linux a
worker ends with the connection to the launcher's socket, and a parent has to stop further children.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def die_with_parent() -> None:
    """Ask the kernel for SIGKILL when the thread that started this process ends.

    A parent that died before the call goes unnoticed here. The worker notices when it connects to
    the launcher's socket.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def child_dies_with_parent(signum: int = signal.SIGKILL) -> Callable[[], None] | None:
    """A ``preexec_fn`` that makes the kernel send ``signum`` when the parent dies.

    None elsewhere than on Linux.
    """
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None, use_errno=True).prctl, os.getpid()

    def arm() -> None:
        prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before the call took effect
            os._exit(1)

    return arm
