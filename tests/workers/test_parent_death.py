"""A child process ends with its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.waiting import wait_until
from workers.parent_death import child_dies_with_parent

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel call is Linux's")

GRANDCHILD = "import signal; print('up', flush=True); signal.pause()"
BY_PREEXEC = f"""
import os, subprocess, sys
from workers.parent_death import child_dies_with_parent
child = subprocess.Popen([sys.executable, "-c", {GRANDCHILD!r}],
    stdout=subprocess.PIPE, preexec_fn=child_dies_with_parent())
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""
BY_CALL = f"""
import os, subprocess, sys
code = "from workers.parent_death import die_with_parent; die_with_parent(); " + {GRANDCHILD!r}
child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("script", [BY_PREEXEC, BY_CALL], ids=["preexec", "call"])
def test_a_killed_parent_takes_its_child_along(script: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
        wait_until(lambda: not is_running(child), what="the child's end")


def test_a_child_whose_parent_is_dead_already_ends_at_once() -> None:
    arm = child_dies_with_parent(signal.SIGTERM)
    assert arm is not None
    first = os.fork()
    if first == 0:
        second = os.fork()  # its parent is not the process that made ``arm``
        if second == 0:
            arm()
            os._exit(0)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(second, 0)[1]))
    assert os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]) == 1


def is_running(pid: int) -> bool:
    """False for a process that is gone, or dead and not yet waited for."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
