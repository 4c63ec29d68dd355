"""A command that crashes leaves no core, whatever the machine would keep."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

CRASH = """
import os, resource, sys
_, hard = resource.getrlimit(resource.RLIMIT_CORE)
resource.setrlimit(resource.RLIMIT_CORE, ({soft}, hard))
sys.argv = ["pgsub", "--version"]
from subscriber.cli import main
main()
print(*resource.getrlimit(resource.RLIMIT_CORE), flush=True)
os.abort()
"""


@pytest.mark.parametrize("soft", ["hard", "0"])
def test_it_and_what_it_starts_may_leave_none(tmp_path: Path, soft: str) -> None:
    """1 and not 0, which would not keep Linux from handing a core to a program."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    child = subprocess.Popen(
        [sys.executable, "-P", "-c", CRASH.format(soft=soft)],
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert child.stdout is not None
    with child.stdout as out:
        said = out.read().decode().splitlines()
    _, status = os.waitpid(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert said[-1] == f"{min(1, hard) if hard >= 0 else 1} {hard}"
    assert os.WIFSIGNALED(status)
    assert not os.WCOREDUMP(status)
    assert list(tmp_path.iterdir()) == []
