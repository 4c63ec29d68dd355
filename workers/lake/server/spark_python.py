"""Spark's Python: a daemon that forks a worker for each task, with the modules of a copy loaded.

Spark's own daemon leaves the import of pandas, Arrow, psycopg and compiled kernels to every forked
worker: more than two seconds of CPU in a worker, as much as the reading of some million rows. Here
the daemon has the modules before it forks.

Spark's own daemon lives for ever, and its workers for a minute after a task: 230 MB that only the
next copy would use. A worker of the embedded server ends with its task
(``spark.python.worker.reuse``), and the daemon ends soon after the last worker (``UntilIdle``).
Spark starts a new daemon for a task when the connection to the former one is refused.

The process is forked by the launcher's fork server, or is the program that Spark starts:
``python_daemon`` describes how the two come together.
"""

from __future__ import annotations

import gc
import json
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from config.monitor_limits import (
    PYTHON_FIRST_TASK_SECONDS,
    PYTHON_FORK_SECONDS,
    PYTHON_IDLE_SECONDS,
)
from workers.parent_death import die_with_parent

LENGTH: Final = struct.Struct(">I")
"""The length of the message that comes with the streams."""
STREAMS: Final = (0, 1, 2)
READY: Final = b"r"
GO_ON: Final = b"g"


class UntilIdle:
    """What the daemon waits with, in place of the module ``select``: ends an idle daemon.

    The daemon waits between two requests of Spark, and holds no accepted connection there. So no
    task gets a connection that ends: a connection that came meanwhile is reset, and Spark tries
    once more, with a new daemon. A new daemon waits longer, for Spark tries only once.
    """

    error: Final = select.error

    def __init__(self, clock: Any = time.monotonic) -> None:
        self._clock = clock
        self._busy_at = clock() + PYTHON_FIRST_TASK_SECONDS

    def select(self, read: Any, write: Any, special: Any, seconds: float) -> Any:
        """Wait as ``select.select`` does; SystemExit if no worker has run for a while."""
        ready = select.select(read, write, special, seconds)
        if any(ready) or _has_workers():
            self._busy_at = self._clock()
        elif self._clock() - self._busy_at >= PYTHON_IDLE_SECONDS:
            raise SystemExit
        return ready


def _has_workers() -> bool:
    """Does a child process run? The daemon ignores SIGCHLD, so an ended child is no child."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def load() -> None:
    """Import what a copy needs; the fork server has all of it."""
    # A copy multiplies no matrices; a thread pool for matrices would only hinder a fork.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for module in (
        "pandas",
        "psycopg.pq",
        "pyarrow.csv",
        "pyspark.sql.pandas.serializers",
        "workers.lake.files.copy_files",
    ):
        import_module(module)
    import_module("workers.columnar.warm").warm_copy()
    gc.collect()


def run() -> None:
    """Run Spark's daemon until no task has come for a while.

    A task ends with a daemon that is killed: otherwise a task of a frozen publisher would live on.
    """
    if os.getsid(0) == os.getpid():
        # The daemon makes a group of its processes. A forked process leads a session, so it has a
        # group, and the system refuses another.
        os.setpgid = lambda _pid, _group: None
    os.register_at_fork(after_in_child=die_with_parent)
    daemon: Any = import_module("pyspark.daemon")
    # A worker collects garbage after every task; frozen, the imported modules are not looked at.
    gc.freeze()
    daemon.select = UntilIdle()
    daemon.manager()


def main(argv: Sequence[str]) -> int:
    """Run in the forked process; ``python_daemon`` waits at the socket whose path is given."""
    path = Path(argv[0])
    with socket.socket(socket.AF_UNIX) as giver:
        if _takes_over(giver, path):
            os.register_at_fork(after_in_child=giver.close)
            run()  # ``giver`` stays open: its end tells that the daemon has ended
    return 0


def _takes_over(giver: socket.socket, path: Path) -> bool:
    """Become the program on the other side, in all that Spark sees; False if nobody waits there."""
    with suppress(OSError):
        giver.settimeout(PYTHON_FORK_SECONDS)
        os.chdir(path.parent)  # a path relative to the folder is never too long
        giver.connect(path.name)
        length, streams, _, _ = socket.recv_fds(giver, LENGTH.size, len(STREAMS))
        with giver.makefile("rb") as message:
            given = json.loads(message.read(*LENGTH.unpack(length)))
        _become(given, streams)
        giver.settimeout(None)  # the program's end is enough
        giver.sendall(READY)
        return giver.recv(1) == GO_ON
    return False


def _become(given: Mapping[str, Any], streams: Sequence[int]) -> None:
    for stream, fd in zip(streams, STREAMS, strict=True):
        os.dup2(stream, fd)
        os.close(stream)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 (open to the end)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 (open to the end)
    sys.argv[:] = given["argv"]
    os.environ.clear()
    os.environ.update(given["environment"])
    time.tzset()
    os.chdir(given["directory"])
