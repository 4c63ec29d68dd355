"""What is installed is what the tree shows, and the lock holds what pyproject.toml asks for."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from catalog.store_sqlite import CatalogStore
from tests.harness import COMMAND

ROOT = Path(__file__).resolve().parent.parent
DISTRIBUTION = "pg-lakehouse-subscriber"
PACKAGES = {"subscriber", "workers", "catalog", "config"}


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def lock() -> list[Requirement]:
    text = (ROOT / "requirements.lock").read_text().replace("\\\n", "")
    return [Requirement(line.split(" --hash")[0]) for line in text.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    words = [sys.executable, "-P", "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    [made] = folder.glob("*.whl")
    return zipfile.ZipFile(made)


def test_lock_holds_every_requirement_in_an_allowed_version(
    pyproject: dict[str, Any], lock: list[Requirement]
) -> None:
    project = pyproject["project"]
    asked = [
        *project["dependencies"],
        *project["optional-dependencies"]["embedded"],
        *pyproject["dependency-groups"]["dev"],
        *pyproject["build-system"]["requires"],
    ]
    pins = {
        canonicalize_name(pin.name): next(iter(pin.specifier)).version
        for pin in lock
        if pin.marker is None or pin.marker.evaluate()
    }
    missing = [
        line
        for line in asked
        if not Requirement(line).specifier.contains(
            pins.get(canonicalize_name(Requirement(line).name), "0"), prereleases=True
        )
    ]
    assert not missing


def test_lock_is_what_is_installed(lock: list[Requirement]) -> None:
    wrong = {}
    for pin in lock:
        if pin.marker is None or pin.marker.evaluate():
            version = importlib.metadata.version(pin.name)
            if not pin.specifier.contains(version, prereleases=True):
                wrong[pin.name] = version
    assert not wrong


def test_lock_has_hashes_and_no_addresses() -> None:
    text = (ROOT / "requirements.lock").read_text()
    entries = [entry for entry in re.split(r"\n(?=\S)", text) if entry.strip()]
    assert all("--hash=sha256:" in entry for entry in entries)
    assert "://" not in text
    assert "index-url" not in text


def test_wheel_has_exactly_the_four_packages(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith((".dist-info", ".data"))} == PACKAGES


def test_wheel_has_a_manual_page_for_each_page_of_a_command(wheel: zipfile.ZipFile) -> None:
    shared = [name for name in wheel.namelist() if ".data/" in name]
    sources = (ROOT / "docs" / "commands").glob("*.md")
    assert {Path(name).name for name in shared} == {f"{source.stem}.1" for source in sources}
    assert {str(Path(*Path(name).parts[1:-1])) for name in shared} == {"data/share/man/man1"}


def test_wheel_carries_the_files_that_are_not_python(wheel: zipfile.ZipFile) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", *PACKAGES], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    tracked = {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}
    assert tracked <= set(wheel.namelist())


def test_wheel_installs_the_command(wheel: zipfile.ZipFile) -> None:
    [entry_points] = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    assert "pgsub = subscriber.cli:main" in wheel.read(entry_points).decode()


def test_no_other_distribution_has_our_names() -> None:
    owners = importlib.metadata.packages_distributions()
    assert {name: owners[name] for name in PACKAGES & owners.keys()} in (
        {},  # a development install lists only its redirector
        {name: [DISTRIBUTION] for name in PACKAGES},
    )


def test_command_runs_in_a_folder_with_modules_of_our_names(tmp_path: Path) -> None:
    for name in PACKAGES:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module')\n")
    done = subprocess.run([str(COMMAND), "--version"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert importlib.metadata.version(DISTRIBUTION) in done.stdout


def test_nothing_but_pytest_can_import_the_tests(tmp_path: Path) -> None:
    script = (
        "from importlib.util import find_spec as find\n"
        "print(find('tests.harness') if find('tests') else None)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.strip() == "None", done.stderr


def test_a_command_that_needs_no_lake_imports_none_of_its_weight() -> None:
    """pandas and numba take a second each, pyarrow with numpy 0.3; Spark's client brings pandas."""
    modules = ", ".join(
        f"subscriber.commands.{name}" for name in ("check", "up", "wait", "create_drop")
    )
    heavy = "{'pandas', 'numba', 'pyspark', 'sqlglot', 'pyarrow', 'numpy'}"
    found = subprocess.run(
        [sys.executable, "-c", f"import sys, {modules}; print(*{heavy} & set(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == []


WEIGHT = {
    *("pyarrow", "numpy", "numba", "pandas", "pyspark", "grpc", "py4j", "psycopg", "sqlglot"),
    *("rich", "multiprocessing", "asyncio", "subscriber.commands.context"),
}
"""What no command loads that reads only the catalog or its own arguments."""

SETTINGS = {"pydantic", "yaml", "config.guc", "config.load"}
"""The model of the settings: only a command that reads a configuration file loads it."""


@pytest.mark.parametrize(
    ("words", "status", "loads"),
    [
        (["--help"], 0, set()),
        (["--version"], 0, set()),
        (["status", "--help"], 0, set()),
        (["status"], 0, set()),
        (["status", "spools", "--format", "json"], 0, set()),
        (["reset-stats"], 0, set()),
        (["check", "wrong.yaml"], 2, SETTINGS),
        (["create", "wrong.yaml"], 2, SETTINGS),
        (["rebuild", "wrong.yaml"], 2, SETTINGS),
        (["disable", "mysub"], 1, {*SETTINGS, "subscriber.commands.context"}),
        (["drop", "mysub"], 1, {*SETTINGS, "subscriber.commands.context"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_loads_no_more_than_it_needs(
    words: list[str], status: int, loads: set[str], tmp_path: Path
) -> None:
    """Each of them takes 0.2 s of processor time or less; pyarrow alone would double that.

    A command that opens its context takes 0.25 s more.
    """
    CatalogStore.open(tmp_path / "data").close()
    (tmp_path / "wrong.yaml").write_text("subscriptions: 7\n")
    script = (
        "import sys; from subscriber.cli import main; status = main(); "
        f"print(*{WEIGHT | SETTINGS!r} & set(sys.modules), file=sys.stderr); sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "--data-dir", "data", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == status, done.stderr
    assert set(done.stderr.splitlines()[-1].split()) == loads
