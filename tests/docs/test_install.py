"""The systemd unit and the container file: what their checkers say, and what the pages say."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from config.limits import WORKER_STOP_SECONDS
from tests.docs.pages import DOCS, ROOT, rows, section

UNIT = DOCS / "install" / "pgsub.service"
PAGE = (DOCS / "install" / "systemd.md").read_text()

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not on PATH"
)


def analyze(*words: str | Path) -> str:
    done = subprocess.run(["systemd-analyze", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@needs_systemd
def test_systemd_has_nothing_to_say_about_the_unit(tmp_path: Path) -> None:
    """The program in the unit is not on this machine."""
    unit = tmp_path / "pgsub.service"
    unit.write_text(UNIT.read_text().replace("/opt/pgsub/bin/pgsub", "/bin/true"))
    assert analyze("verify", unit) == ""


@needs_systemd
def test_the_unit_is_exposed_little() -> None:
    said = analyze("security", "--offline=true", UNIT)
    found = re.search(r"exposure level for pgsub.service: (\d+\.\d)", said)
    assert found is not None
    assert float(found[1]) <= 3.0
    assert f"gives the unit {found[1]} " in PAGE.replace("\n", " ")


def test_the_unit_waits_for_the_workers() -> None:
    settings = dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), flags=re.MULTILINE))
    assert (settings["Type"], settings["KillMode"]) == ("notify", "mixed")
    assert int(settings["TimeoutStopSec"]) > WORKER_STOP_SECONDS + 40
    assert "MemoryDenyWriteExecute" not in settings


HADOLINT = Path(sys.executable).with_name("hadolint")
DOCKERFILE = (ROOT / "Dockerfile").read_text()


@pytest.mark.skipif(not HADOLINT.exists(), reason="hadolint is not in this environment")
def test_hadolint_has_nothing_to_say_about_the_container_file() -> None:
    done = subprocess.run([HADOLINT, ROOT / "Dockerfile"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_s_version_is_the_project_s() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"\nARG VERSION={project['version']}\n" in DOCKERFILE


def test_the_page_has_every_argument_of_the_build() -> None:
    page = (DOCS / "install" / "image.md").read_text()
    told = {name for row in rows(section(page, "## Build arguments")) for name in names(row[0])}
    assert told == set(re.findall(r"^ARG (\w+)", DOCKERFILE, re.MULTILINE))


def names(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)
