"""The systemd unit: what systemd says of it, and what the page says."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from config.limits import WORKER_STOP_SECONDS
from tests.docs.pages import DOCS

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
