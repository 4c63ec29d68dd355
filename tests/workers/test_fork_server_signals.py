"""Signals that reach the fork server while it imports the workers' modules."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_all_processes_does_not_end_the_fork_server(number: signal.Signals) -> None:
    code = "import workers.fork_server_signals; print('ready', flush=True); print(input())"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        server.send_signal(number)
        assert server.communicate("goes on\n")[0] == "goes on\n"
    assert server.returncode == 0
