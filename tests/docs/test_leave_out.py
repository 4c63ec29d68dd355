"""What the image's build removes is what the list names."""

from __future__ import annotations

import importlib.util
import platform
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from tests.docs.pages import DOCS

LIST: Final = DOCS / "install" / "left_out.txt"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("leave_out", DOCS / "install" / "leave_out.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def jar(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name in names:
            file.writestr(name, name)
    return path


def names(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as file:
        assert all(file.read(each).decode() == each for each in file.namelist())
        return file.namelist()


def test_files_and_folders_that_a_pattern_matches_are_gone(
    tool: ModuleType, tmp_path: Path
) -> None:
    for name in ("one/tests/deep/tests/t.py", "one/kept.py", "jars/a-1.jar", "jars/b-1.jar"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("12345")
    assert tool.leave_out("**/tests", [tmp_path]) >= 5
    assert tool.leave_out("jars/a-*", [tmp_path / "jars", tmp_path]) == 5
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"one/kept.py", "jars/b-1.jar"}


def test_a_pattern_that_matches_nothing_is_an_error(tool: ModuleType, tmp_path: Path) -> None:
    jar(tmp_path / "a.jar", "one")
    for pattern in ("b*.jar", "a.jar!two", "a.jar!native"):
        with pytest.raises(ValueError, match="match"):
            tool.leave_out(pattern, [tmp_path])
    assert names(tmp_path / "a.jar") == ["one"]


def test_entries_are_taken_out_of_a_jar(tool: ModuleType, tmp_path: Path) -> None:
    path = jar(tmp_path / "a-1.jar", "META-INF/MANIFEST.MF", "data/unit/en", "data/coll/en")
    tool.leave_out("a-*.jar!data/unit/*", [tmp_path])
    assert names(path) == ["META-INF/MANIFEST.MF", "data/coll/en"]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_jar_keeps_the_libraries_for_this_system(
    tool: ModuleType, tmp_path: Path, machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    here = {
        "x86_64": ["linux/amd64/libzstd.so", "native/Linux/x86_64/libsqlite.so"],
        "aarch64": ["linux/aarch64/libzstd.so"],
    }
    others = [
        "win/amd64/zstd.dll",
        "native/Linux-Musl/x86_64/libsqlite.so",
        "darwin/aarch64/z.dylib",
    ]
    everything = [each for libraries in here.values() for each in libraries]
    path = jar(tmp_path / "z.jar", "Zstd.class", *everything, *others)
    tool.leave_out("z.jar!native", [tmp_path])
    assert names(path) == ["Zstd.class", *here[machine]]


def test_each_paragraph_of_the_list_begins_with_its_reason(tool: ModuleType) -> None:
    for paragraph in LIST.read_text().split("\n\n"):
        lines = paragraph.strip().splitlines()
        assert lines[0].startswith("# ")
        reasons = [line for line in lines if line.startswith("#")]
        assert lines[: len(reasons)] == reasons


def test_the_list_names_what_the_installed_packages_have(tool: ModuleType) -> None:
    """A new version that moved something is seen before an image is built."""
    packages = [Path(each) for each in sys.path if each.endswith("site-packages")]
    folders = [*packages, Path(sys.prefix) / "share" / "pgsub" / "ivy" / "jars"]
    for pattern in tool.patterns(LIST.read_text()):
        path = pattern.partition("!")[0]
        assert any(next(folder.glob(path), None) for folder in folders), pattern
