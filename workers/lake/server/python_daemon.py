"""Spark's Python daemon, with the modules of a copy imported before the daemon forks workers.

The embedded server runs the module as ``spark.python.daemon.module``. Spark's own daemon leaves the
import of pandas, Arrow, psycopg and compiled kernels to every forked worker: more than two seconds
of CPU in a worker, as much as the reading of some million rows.

Spark's own daemon lives for ever, and its workers for a minute after a task: 230 MB that only the
next copy would use. A worker of the embedded server ends with its task
(``spark.python.worker.reuse``), and the daemon ends soon after the last worker (``UntilIdle``).
Spark starts a new daemon for a task when the connection to the former one is refused.
"""

from __future__ import annotations

import gc
import os
import re
import select
import sys
from importlib import import_module
from time import monotonic
from typing import Any, Final

# Spark puts archives in front of the path: pyspark and py4j, although both are installed and
# compiled, and the jar of Spark's core, which holds no Python. Modules of an archive are compiled
# at every start, and every task reads the archives' directories again (0.1 s).
_ARCHIVE = re.compile(r".*/(pyspark\.zip|py4j-[^/]*\.zip|spark-core_[^/]*\.jar)")
sys.path[:] = [entry for entry in sys.path if not _ARCHIVE.fullmatch(entry)]
sys.path_importer_cache.clear()

# A copy multiplies no matrices; a thread pool for matrices would only hinder a fork.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

for _module in (
    "pandas",
    "psycopg.pq",
    "pyarrow.csv",
    "pyspark.sql.pandas.serializers",
    "workers.lake.files.copy_files",
):
    import_module(_module)
import_module("workers.columnar.warm").warm_copy()

from config.monitor_limits import (  # noqa: E402 (behind the archives)
    PYTHON_FIRST_TASK_SECONDS,
    PYTHON_IDLE_SECONDS,
)

# A worker collects garbage after every task; frozen, the imported modules are not looked at.
gc.collect()
gc.freeze()


class UntilIdle:
    """What the daemon waits with, in place of the module ``select``: ends an idle daemon.

    The daemon waits between two requests of Spark, and holds no accepted connection there. So no
    task gets a connection that ends: a connection that came meanwhile is reset, and Spark tries
    once more, with a new daemon. A new daemon waits longer, for Spark tries only once.
    """

    error: Final = select.error

    def __init__(self, clock: Any = monotonic) -> None:
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


def run() -> None:
    """Run Spark's daemon until no task has come for a while."""
    daemon: Any = import_module("pyspark.daemon")
    daemon.select = UntilIdle()
    daemon.manager()


if __name__ == "__main__":
    run()
