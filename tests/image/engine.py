"""A Docker engine, and images without a registry: the base is made by ``debootstrap``.

An engine that runs is taken as it is. Otherwise root starts Debian's ``dockerd`` for the time of
the tests; its images stay on the disk, so a second run builds only what has changed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.waiting import wait_until
from workers.parent_death import dying_with_parent

BASE: Final = "pgsub-test-base:bookworm"
BASE_VARIABLE: Final = "PGSUB_IMAGE_BASE"
AUTHORITIES: Final = "etc/ssl/certs/ca-certificates.crt"
LEFT_OUT: Final = ("var/cache/apt", "var/lib/apt/lists", "var/log", "usr/share/doc")
"""What Debian's own slim image leaves out too."""


def docker(*words: str | Path, status: int | None = 0, stdin: str = "", **env: str) -> str:
    """Run the client; its output. Fails unless the command ends with ``status`` (None: any)."""
    done = subprocess.run(
        ["docker", *map(str, words)],
        capture_output=True,
        text=True,
        input=stdin,
        env={**os.environ, **env},
    )
    said = done.stdout + done.stderr
    assert status is None or done.returncode == status, f"docker {words}: {said[-4000:]}"
    return said


def inspect(name: str) -> dict[str, Any]:
    """All that the engine knows of a container or an image."""
    [known] = json.loads(docker("inspect", name))
    return dict(known)


def answers() -> bool:
    """Does an engine answer the client?"""
    return subprocess.run(["docker", "version"], capture_output=True).returncode == 0


@contextmanager
def engine() -> Iterator[None]:
    """An engine for a while; skips the tests with the reason if there is none to be had."""
    if shutil.which("docker") is None:
        pytest.skip("there is no Docker: apt-get install docker.io debootstrap")
    if answers():
        yield
        return
    dockerd = shutil.which("dockerd")
    if os.geteuid() != 0 or dockerd is None:
        pytest.skip("no Docker engine runs, and only root with Debian's docker.io can start one")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as file:
            daemon = subprocess.Popen(
                dying_with_parent([dockerd, "--pidfile", f"{folder}/pid"]),
                stdout=file,
                stderr=file,
            )
        try:
            wait_until(lambda: answers() or daemon.poll() is not None, what="dockerd answers")
            if daemon.poll() is not None:
                pytest.skip(f"dockerd does not start here: {log.read_text()[-300:]}")
            yield
        finally:
            daemon.terminate()
            daemon.wait(60)


def base_image() -> str:
    """The name of an image of Debian 12, made if need be; skips where none can be made."""
    given = os.environ.get(BASE_VARIABLE)
    if given:
        return given
    if BASE in docker("image", "ls", "--format", "{{.Repository}}:{{.Tag}}"):
        return BASE
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        pytest.skip(f"no base image: name one in {BASE_VARIABLE}, or apt-get install debootstrap")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        make = ["debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm"]
        made = subprocess.run([*make, str(root)], capture_output=True, text=True)
        assert made.returncode == 0, made.stdout[-2000:]
        for each in LEFT_OUT:
            shutil.rmtree(root / each)
            (root / each).mkdir()
        # The packages come through what this machine trusts.
        if Path("/", AUTHORITIES).is_file():
            shutil.copy(Path("/", AUTHORITIES), root / AUTHORITIES)
        with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as tar:
            subprocess.run(["docker", "import", "-", BASE], stdin=tar.stdout, check=True)
    return BASE
