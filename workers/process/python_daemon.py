"""What Spark starts as its Python daemon: a small program that has a loaded process do the work.

Spark starts ``python -m workers.process.python_daemon`` for a task when no daemon is there, and
reads the daemon's port from the standard output. The modules of a copy take a second of a
processor and 150 MB of memory; the launcher's fork server has them, and a forked process shares
them. So the program has the launcher fork Spark's Python (``spark_python``), and gives the process
all that Spark gave the program: the standard streams, the environment, the directory, the words of
the command line.

Trace::

    Spark     starts the program, 812, and waits for a port
    812       listens on ``python-812`` in the server's folder of temporary files
    812       asks the launcher, and waits
    830       is forked, connects, and takes what 812 has
    830       READY
    812       GO_ON
    830       writes a port to Spark; tasks come
    830       ends when it has been idle for a while
    812       ends

Without a launcher, or without READY in time, 812 loads the modules and is the daemon itself. Before
GO_ON nothing is written to Spark, and without GO_ON a forked process ends: so exactly one of the
two writes a port.

Java closes the standard input of a process that ends. So 812 lives as long as 830, and 830 ends if
Spark kills 812.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

# Spark puts archives in front of the path: pyspark and py4j, although both are installed and
# compiled, and the jar of Spark's core, which holds no Python. Modules of an archive are compiled
# at every start, and every task reads the archives' directories again (0.1 s).
_ARCHIVE: Final = re.compile(r".*/(pyspark\.zip|py4j-[^/]*\.zip|spark-core_[^/]*\.jar)")
sys.path[:] = [entry for entry in sys.path if not _ARCHIVE.fullmatch(entry)]
sys.path_importer_cache.clear()

from catalog.errcodes import ReplicationError  # noqa: E402 (behind the archives)
from config.monitor_limits import PYTHON_FORK_SECONDS  # noqa: E402 (behind the archives)
from workers.lake.server.scratch import SCRATCH_VARIABLE  # noqa: E402 (behind the archives)
from workers.lake.server.spark_python import (  # noqa: E402 (behind the archives)
    GO_ON,
    LENGTH,
    READY,
    STREAMS,
    load,
    run,
)
from workers.process.launcher_client import fork_spark_python  # noqa: E402 (behind the archives)


def main() -> None:
    """Have a forked process be the daemon, or be the daemon."""
    folder = os.environ.get(SCRATCH_VARIABLE)
    if folder is None or not handed_over(Path(folder)):
        load()
        run()


def handed_over(folder: Path) -> bool:
    """Has a forked process been the daemon until its end? False: Spark has heard nothing yet."""
    deadline = monotonic() + PYTHON_FORK_SECONDS
    try:
        directory = Path.cwd()
        taker = _forked(folder, directory, deadline)
        if taker is None:
            return False
        with taker:
            _give(taker, directory, deadline)
            with suppress(OSError):
                taker.settimeout(None)
                taker.recv(1)
    except (OSError, ReplicationError) as error:
        print(f"Spark's Python is not forked: {type(error).__name__}", file=sys.stderr)
        return False
    return True


def _forked(folder: Path, directory: Path, deadline: float) -> socket.socket | None:
    """The connection of a process that the launcher has had forked; None without a launcher."""
    path = folder / f"python-{os.getpid()}"
    mask = os.umask(0o177)
    try:
        os.chdir(folder)  # a path relative to the folder is never too long for a socket
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
            listener.listen(1)
            if not fork_spark_python(folder.parent.parent, path):
                return None
            listener.settimeout(_left(deadline))
            return listener.accept()[0]
    finally:
        os.umask(mask)
        path.unlink(missing_ok=True)
        os.chdir(directory)


def _give(taker: socket.socket, directory: Path, deadline: float) -> None:
    """Give all to the process, and have the process go on; OSError if it is not ready in time."""
    given = {"argv": sys.argv, "environment": dict(os.environ), "directory": str(directory)}
    message = json.dumps(given).encode()
    taker.settimeout(_left(deadline))
    socket.send_fds(taker, [LENGTH.pack(len(message))], STREAMS)
    taker.sendall(message)
    taker.settimeout(_left(deadline))
    if taker.recv(1) != READY:
        raise ConnectionResetError
    taker.sendall(GO_ON)


def _left(deadline: float) -> float:
    return max(deadline - monotonic(), 0.001)


if __name__ == "__main__":
    main()
