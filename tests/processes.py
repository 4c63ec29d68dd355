"""Processes that may end while a test looks at them, and processes for a single call."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil


def command_line(process: psutil.Process) -> list[str]:
    """The arguments of a process; none of a process that has ended, a zombie too."""
    with suppress(psutil.NoSuchProcess):
        return list(process.cmdline())
    return []


def fork_server_of(launcher: psutil.Process) -> psutil.Process | None:
    """The launcher's own child that forks the workers: workers have its command line too."""
    for child in launcher.children():
        if "multiprocessing.forkserver" in " ".join(command_line(child)):
            return child
    return None


def name_of(process: psutil.Process) -> str:
    """The name of a process; empty for a process that has ended."""
    with suppress(psutil.NoSuchProcess):
        return str(process.name())
    return ""


def told_alone(call: str, module: str, environment: Mapping[str, str]) -> float:
    """What a function of a module returns, called in a fresh process with such an environment."""
    root = {"PYTHONPATH": str(Path(__file__).parents[1])}
    script = f"from {module} import {call}; print({call}())"
    command = [sys.executable, "-c", script]
    env = os.environ | environment | root
    return float(subprocess.run(command, env=env, check=True, capture_output=True).stdout)
