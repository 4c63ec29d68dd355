"""A child process ends with its parent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.waiting import wait_until
from workers.parent_death import dying_with_parent

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel call is Linux's")

GRANDCHILD = "import signal; print('up', flush=True); signal.pause()"
BEHIND_A_PROGRAM = f"""
import os, subprocess, sys
from workers.parent_death import dying_with_parent
child = subprocess.Popen(dying_with_parent([sys.executable, "-c", {GRANDCHILD!r}]),
    stdout=subprocess.PIPE)
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


@pytest.mark.parametrize("script", [BEHIND_A_PROGRAM, BY_CALL], ids=["program", "call"])
def test_a_killed_parent_takes_its_child_along(script: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
        wait_until(lambda: not is_running(child), what="the child's end")


def test_a_child_whose_parent_is_dead_already_ends_at_once() -> None:
    words = dying_with_parent([sys.executable, "-c", "print('begun')"])
    begun = subprocess.run(words, capture_output=True, check=True)
    assert begun.stdout == b"begun\n"
    words[words.index(str(os.getpid()))] = "1"  # the process that made the words is not the parent
    done = subprocess.run(words, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")


def test_it_is_the_program_itself_with_its_words_descriptors_and_user() -> None:
    code = "import os, sys; print(os.getpid(), sys.argv[1:], os.read(int(sys.argv[1]), 9))"
    reading, writing = os.pipe()
    os.write(writing, b"through")
    os.close(writing)
    user = (os.geteuid(), os.getegid()) if os.geteuid() == 0 else None
    words = dying_with_parent([sys.executable, "-c", code, str(reading), "a b"], user=user)
    with subprocess.Popen(words, pass_fds=[reading], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.read() == f"{child.pid} ['{reading}', 'a b'] b'through'\n"
    os.close(reading)


def test_a_program_that_is_not_there_is_told() -> None:
    done = subprocess.run(dying_with_parent(["/no/such/program"]), capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stderr == b"could not execute /no/such/program: No such file or directory\n"


def test_no_process_of_ours_runs_python_between_fork_and_exec() -> None:
    """A thread may hold a lock at the fork; then the copy, and the parent, would wait for ever.

    gRPC begins threads in the copy, whose descriptors are closed by then: the copy is aborted.
    """
    rooms = ("workers", "subscriber", "tests")
    sources = [path for room in rooms for path in (ROOT / room).rglob("*.py")]
    users = sorted(path.name for path in sources if "preexec_fn=" in path.read_text())
    # One test of a full disk sets a limit in the copy.
    assert (len(sources) > 100, users) == (True, ["test_create_errors.py", Path(__file__).name])


def is_running(pid: int) -> bool:
    """False for a process that is gone, or dead and not yet waited for."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
