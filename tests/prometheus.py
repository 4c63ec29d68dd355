"""Debian's Prometheus: the server and ``promtool``, fetched once into a folder beside the jars.

A test that needs either is skipped, with the reason, where the package cannot be had.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(sys.prefix) / "share" / "pgsub-tests" / "prometheus"


def program(name: str) -> Path:
    """``prometheus`` or ``promtool``: the machine's, else Debian's."""
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = FOLDER / "usr" / "bin" / name
        if not path.exists():
            _fetch()
    if not path.exists():
        pytest.skip(f"{name} is not on PATH, and apt-get cannot download Debian's prometheus")
    return path


def _fetch() -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return
    subprocess.run(["apt-get", "download", "prometheus"], cwd=FOLDER, capture_output=True)
    for package in FOLDER.glob("prometheus_*.deb"):
        subprocess.run(["dpkg-deb", "--extract", package, FOLDER], check=True, capture_output=True)
        package.unlink()


def promtool(*words: str | Path, stdin: bytes = b"") -> str:
    """Run ``promtool``; its words, and the test fails unless it is content."""
    done = subprocess.run([program("promtool"), *words], input=stdin, capture_output=True)
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, said
    return said
