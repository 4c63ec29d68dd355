"""Die with the parent: no worker outlives the launcher and keeps a replication slot busy."""

from __future__ import annotations

import ctypes
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def die_with_parent() -> None:
    """Ask the kernel for SIGKILL when the thread that started this process ends (Linux only).

    A parent that died before the call goes unnoticed here. The worker notices when it connects to
    the launcher's socket; on other systems than Linux, by the end of the connection.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
