"""The commands of docs/install/pip.md, run from the page's text against the package index."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import DOCS, ROOT, blocks

pytestmark = [pytest.mark.install, pytest.mark.timeout(3000)]

PAGE: Final = DOCS / "install" / "pip.md"
EXAMPLE, CARRY, ALONE = blocks(PAGE, "text")
PIPX, UV = blocks(PAGE, "sh")
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


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the commands pipx and uv."""
    folder = tmp_path_factory.mktemp("tools")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "pipx", "uv"]
    subprocess.run(pip, check=True, capture_output=True)
    return folder / "bin"


@pytest.mark.parametrize("block", [PIPX, UV], ids=["pipx", "uv"])
def test_a_tool_s_environment_has_the_command(folder: Path, tools: Path, block: str) -> None:
    """In a home without anything; the command is the one that the tool has put into ``PATH``."""
    home = folder / "home"
    path = f"{home / '.local' / 'bin'}:{tools}:{os.environ['PATH']}"
    assert "equal" in run(block, folder, PATH=path, UV_PYTHON=sys.executable)
    assert run("command -v pgsub", folder, PATH=path).strip() == f"{home}/.local/bin/pgsub"
    if block == PIPX and shutil.which("man"):
        assert run("man --where pgsub-up", folder, PATH=path).startswith(str(home / ".local"))
