"""What Spark's Python daemon finds where Spark starts it."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

HOME = Path(pyspark.__file__).parent

_IMPORTERS = """
import sys, zipimport, workers.lake.server.python_daemon
print(*(e for e, f in sys.path_importer_cache.items() if isinstance(f, zipimport.zipimporter)))
"""
_IDLE_SECONDS = 1.0
_DAEMON = f"""
import workers.lake.server.python_daemon as daemon
daemon.PYTHON_IDLE_SECONDS = {_IDLE_SECONDS}
daemon.run()
"""


def test_no_archive_is_left_that_each_task_would_read_again() -> None:
    [path] = HOME.glob("jars/spark-core_*.jar")  # what Spark puts there for a daemon of its own
    environ = os.environ | {"PYTHONPATH": str(path)}
    found = subprocess.run(
        [sys.executable, "-c", _IMPORTERS], env=environ, capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == []


@contextmanager
def _daemon() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A daemon as Spark starts it, and the port that it tells Spark."""
    environ = os.environ | {"PYTHON_WORKER_FACTORY_SECRET": "s"}
    command = [sys.executable, "-c", _DAEMON, "pyspark.worker"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environ, stdin=pipe, stdout=pipe) as process:
        try:
            assert process.stdout is not None
            yield process, struct.unpack(">i", process.stdout.read(4))[0]
        finally:
            process.kill()


@pytest.mark.timeout(60)
def test_the_daemon_ends_once_no_task_runs_and_not_before() -> None:
    with _daemon() as (process, port):
        with socket.create_connection(("127.0.0.1", port)) as task:
            assert struct.unpack(">i", task.recv(4))[0] > 0  # the worker's pid
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(3 * _IDLE_SECONDS)
        process.wait(20)
        with pytest.raises(ConnectionRefusedError):  # Spark starts a new daemon then
            socket.create_connection(("127.0.0.1", port))
