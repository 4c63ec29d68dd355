"""The built wheel in an environment of its own, far from the checkout.

The dependencies are those of this environment: a file of the new environment names their folder.
``pip`` would fetch the same a second time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NO_NETWORK = {
    "DEFAULT_ARTIFACT_REPOSITORY": "http://127.0.0.1:9/",
    "http_proxy": "http://127.0.0.1:9/",
}

pytestmark = [pytest.mark.install, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel, and a home and working folder without anything."""

    folder: Path

    @property
    def command(self) -> Path:
        return self.folder / "env" / "bin" / "pgsub"

    def run(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        java = {name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ}
        return subprocess.run(
            [str(self.command), *words],
            cwd=self.folder / "work",
            env={**kept, **java, "HOME": str(self.folder / "home"), **env},
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def packages(self) -> Path:
        """Where the wheel was installed."""
        return next((self.folder / "env" / "lib").glob("python*/site-packages"))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("installed")
    for name in ("home", "work", "dist"):
        (folder / name).mkdir()
    python = folder / "env" / "bin" / "python"
    build = [sys.executable, "-P", "-m", "hatchling", "build", "-t", "wheel", "-d"]
    subprocess.run([*build, str(folder / "dist")], cwd=ROOT, check=True, capture_output=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder / "env")], check=True)
    [wheel] = (folder / "dist").glob("*.whl")
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], cwd=folder, check=True)
    made = Installed(folder)
    (made.packages() / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return made


def test_the_packages_are_the_wheel_s(installed: Installed) -> None:
    python = installed.folder / "env" / "bin" / "python"
    words = "import subscriber, workers, catalog, config; print(workers.__file__)"
    done = subprocess.run(
        [str(python), "-c", words], cwd=installed.folder, capture_output=True, text=True, check=True
    )
    assert Path(done.stdout.strip()).is_relative_to(installed.packages())


def test_jars_travel_to_a_machine_without_a_network(installed: Installed) -> None:
    """Then the demo runs: nothing is left to fetch, and nothing of the checkout is used."""
    refused = installed.run("fetch", **NO_NETWORK)
    assert refused.returncode == 1
    assert "could not resolve" in refused.stderr
    assert "pgsub fetch --to DIR" in refused.stderr
    usb = installed.folder / "usb"
    checkout = subprocess.run(
        [str(Path(sys.executable).with_name("pgsub")), "fetch", "--to", str(usb)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"pgsub fetch --from {usb}" in checkout.stdout
    fetched = installed.run("fetch", "--from", str(usb), **NO_NETWORK)
    assert fetched.returncode == 0, fetched.stderr
    assert [line.split(":")[0] for line in fetched.stdout.splitlines()] == [
        "jars",
        "kernels",
        "class archive",
    ]
    assert list(installed.packages().rglob("kernels-*/**/*.nbi")), "kernels of the installation"
    demo = installed.run("demo", **NO_NETWORK)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "Traceback" not in demo.stdout + demo.stderr
    assert (installed.folder / "work" / "pgsub_data").is_dir()
