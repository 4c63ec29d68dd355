"""The commands of docs/install/pip.md, run from the page's text against the package index."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import DOCS, ROOT, blocks

pytestmark = [pytest.mark.install, pytest.mark.timeout(3000)]

PAGE: Final = DOCS / "install" / "pip.md"
EXAMPLE, CARRY, ALONE = blocks(PAGE, "text")
NOWHERE: Final = "http://127.0.0.1:9/"


def run(script: str, folder: Path, **env: str) -> str:
    """Run a block of the page in a folder that holds ``dist``; the places are in that folder."""
    for place, own in (("/opt/pgsub", f"{folder}/env"), ("/tmp/demo", f"{folder}/demo")):
        script = script.replace(place, own)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, "HOME": str(folder / "home"), **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-4000:]
    assert "Traceback" not in said
    return said


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the wheel in ``dist``, as ``make wheel`` leaves the checkout."""
    build = [sys.executable, "-P", "-m", "hatchling", "build", "-t", "wheel", "-d"]
    subprocess.run([*build, str(tmp_path / "dist")], cwd=ROOT, check=True, capture_output=True)
    (tmp_path / "home").mkdir()
    return tmp_path


def test_the_page_s_example_ends_with_equal_digests(folder: Path) -> None:
    assert "equal" in run(EXAMPLE, folder)


def test_what_the_page_carries_installs_without_an_index(folder: Path) -> None:
    """The machine with the network is the environment of the tests."""
    commands = Path(sys.executable).parent
    run(CARRY.replace("pip ", f"{sys.executable} -m pip ", 1), folder,
        PATH=f"{commands}:{os.environ['PATH']}")  # fmt: skip
    closed = {"PIP_INDEX_URL": NOWHERE, "PIP_FIND_LINKS": "", "http_proxy": NOWHERE,
              "https_proxy": NOWHERE, "DEFAULT_ARTIFACT_REPOSITORY": NOWHERE}  # fmt: skip
    said = run(ALONE, folder, **closed)
    assert "class archive" in said
    demo = run(f"{folder}/env/bin/pgsub --data-dir /tmp/demo demo", folder, **closed)
    assert "equal" in demo
