"""Spark's end of its Python, played by a test: starts a program, reads a port, gives a task."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from workers.lake.server.scratch import SCRATCH_VARIABLE

_PROGRAM = ("-m", "workers.process.python_daemon")


@contextmanager
def started(
    data_dir: Path,
    *,
    program: Sequence[str] = _PROGRAM,
    cwd: Path | None = None,
    **environment: str,
) -> Iterator[subprocess.Popen[bytes]]:
    """The program as Spark starts it; killed at the end."""
    given = {
        "PYTHON_WORKER_FACTORY_SECRET": "s",
        SCRATCH_VARIABLE: str(data_dir / "lake" / "tmp"),
    }
    environ = os.environ | given | environment
    command = [sys.executable, *program, "pyspark.worker"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environ, stdin=pipe, stdout=pipe, cwd=cwd) as process:
        try:
            yield process
        finally:
            process.kill()


def port_of(program: subprocess.Popen[bytes]) -> int:
    """The port that the daemon tells Spark."""
    assert program.stdout is not None
    port: int = struct.unpack(">i", program.stdout.read(4))[0]
    return port


@contextmanager
def task_at(port: int) -> Iterator[int]:
    """A task of the daemon at the port, as long as the connection lives; the worker's pid."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as task:
        pid: int = struct.unpack(">i", task.recv(4))[0]
        yield pid
