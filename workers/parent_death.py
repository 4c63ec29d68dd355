"""Let a child process end with its parent, through the kernel (Linux only).

Without the launcher no worker goes on and keeps a replication slot busy. Elsewhere than on Linux a
worker ends with the connection to the launcher's socket, and a parent has to stop further children.

A program of ours calls ``die_with_parent`` first of all. Any other program, as Java, starts behind
a short program that calls the kernel and then becomes the other program. ``preexec_fn`` would do
the same in the forked copy of the parent. But a thread of the parent may hold a lock at the fork,
and the copy would wait for the lock for ever, and the parent for the copy.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

_PR_SET_PDEATHSIG: Final = 1

_BECOME: Final = """
import ctypes, os, sys
signum, parent, uid, gid = map(int, sys.argv[1:5])
if uid >= 0:
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
ctypes.CDLL(None).prctl(1, signum, 0, 0, 0)
if os.getppid() != parent:
    os._exit(1)
try:
    os.execv(sys.argv[5], sys.argv[5:])
except OSError as error:
    sys.exit(f"could not execute {sys.argv[5]}: {error.strerror}")
"""
"""A change of the user takes the signal back, so the user comes first. A parent that died before
the call is seen by the number of the parent."""


def die_with_parent() -> None:
    """Ask the kernel for SIGKILL when the thread that started this process ends.

    A parent that died before the call goes unnoticed here. The worker notices when it connects to
    the launcher's socket.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def dying_with_parent(
    argv: Sequence[str], signum: int = signal.SIGKILL, *, user: tuple[int, int] | None = None
) -> list[str]:
    """The words of a program that gets ``signum`` from the kernel when this process dies.

    ``argv`` begins with a path. The process id stays the same. ``user`` is the uid and the gid to
    run as. Elsewhere than on Linux there is no signal.
    """
    if sys.platform != "linux" and user is None:
        return list(argv)
    numbers = [signum, os.getpid(), *(user or (-1, -1))]
    return [sys.executable, "-I", "-S", "-c", _BECOME, *map(str, numbers), *argv]
