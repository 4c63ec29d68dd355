"""The life of Spark's Python: idle, taken over, and not taken over."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workers.process.spark_peer import port_of, started, task_at
from workers.lake.server.spark_python import LENGTH, READY

_IDLE_SECONDS = 1.0
_DAEMON = f"""
import workers.lake.server.spark_python as spark_python
spark_python.PYTHON_IDLE_SECONDS = {_IDLE_SECONDS}
spark_python.load()
spark_python.run()
"""
_TAKER = """
import sys
from workers.lake.server import spark_python
spark_python.run = lambda: print("runs")
sys.exit(spark_python.main(sys.argv[1:]))
"""


@pytest.mark.timeout(60)
def test_the_daemon_ends_once_no_task_runs_and_not_before(tmp_path: Path) -> None:
    with started(tmp_path, program=("-c", _DAEMON)) as process:
        port = port_of(process)
        with task_at(port) as pid:
            assert pid > 0
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(3 * _IDLE_SECONDS)
        process.wait(20)
        with pytest.raises(ConnectionRefusedError):  # Spark starts a new daemon then
            socket.create_connection(("127.0.0.1", port))


@pytest.mark.parametrize("answer", [b"", b"x"])
def test_a_process_that_is_not_told_to_go_on_ends(tmp_path: Path, answer: bytes) -> None:
    path = tmp_path / "socket"
    taken, given = os.pipe()
    message = json.dumps(
        {"argv": ["x"], "environment": dict(os.environ), "directory": str(tmp_path)}
    ).encode()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(30)
        with subprocess.Popen([sys.executable, "-c", _TAKER, str(path)]) as process:
            program, _ = listener.accept()
            with program:
                socket.send_fds(program, [LENGTH.pack(len(message))], [taken, given, given])
                program.sendall(message)
                assert program.recv(1) == READY
                program.sendall(answer)
            assert process.wait(30) == 0
    os.close(given)
    assert os.read(taken, 100) == b""
    os.close(taken)


def test_a_process_that_comes_too_late_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _TAKER, str(tmp_path / "none")]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b""
