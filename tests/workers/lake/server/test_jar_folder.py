"""A folder that carries the jars to a machine without a network."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from catalog.errcodes import IoError
from workers.lake.server import jar_folder
from workers.lake.server.jar_folder import SUMS, save_jars, take_jars
from workers.lake.server.jars import sha256
from workers.lake.server.known_jars import Jar


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two small jars that pgsub always needs, and one that a catalog with a ``uri`` needs."""
    resolved = tmp_path / "resolved"
    resolved.mkdir()
    known, paths = [], []
    for name in ("one", "two", "three"):
        jar = Jar("a.group", name, "1.0", "")
        path = resolved / jar.file_name
        path.write_bytes(name.encode())
        known.append(jar._replace(sha256=sha256(path)))
        paths.append(path)
    always, optional = known[:2], known[2:]
    monkeypatch.setattr(
        jar_folder,
        "needed_jars",
        lambda catalog: (*always, *(optional if "uri" in catalog else ())),
    )
    monkeypatch.setattr(jar_folder, "OPTIONAL", tuple(optional))
    return paths


def test_what_is_saved_is_taken(tmp_path: Path, jars: list[Path]) -> None:
    folder, home = tmp_path / "usb" / "jars", tmp_path / "home"
    save_jars(jars, folder)
    save_jars(jars, folder)
    assert {path.name for path in folder.iterdir()} == {*(path.name for path in jars), SUMS}
    subprocess.run(["sha256sum", "--check", "--strict", SUMS], cwd=folder, check=True)
    take_jars(folder, home)
    assert [(home / "jars" / jar.name).read_bytes() for jar in jars] == [b"one", b"two", b"three"]


def test_a_folder_without_a_jar_is_refused_before_anything_is_copied(
    tmp_path: Path, jars: list[Path]
) -> None:
    save_jars(jars[:1], tmp_path / "usb")
    with pytest.raises(IoError, match=jars[1].name) as error:
        take_jars(tmp_path / "usb", tmp_path / "home")
    assert error.value.code == "58P01"
    assert not (tmp_path / "home").exists()


def test_a_jar_that_a_catalog_needs_is_missed_only_with_the_catalog(
    tmp_path: Path, jars: list[Path]
) -> None:
    folder, home = tmp_path / "usb", tmp_path / "home"
    save_jars(jars[:2], folder)
    take_jars(folder, home)
    assert not (home / "jars" / jars[2].name).exists()
    with pytest.raises(IoError, match=jars[2].name):
        take_jars(folder, home, {"uri": "a database"})
    save_jars(jars, folder)
    take_jars(folder, home, {"uri": "a database"})
    assert (home / "jars" / jars[2].name).read_bytes() == b"three"


def test_a_damaged_file_is_refused_and_the_earlier_jar_stays(
    tmp_path: Path, jars: list[Path]
) -> None:
    folder, home = tmp_path / "usb", tmp_path / "home"
    save_jars(jars, folder)
    take_jars(folder, home)
    (folder / jars[1].name).write_bytes(b"tw")
    with pytest.raises(IoError, match=r"is not a\.group:two:1\.0"):
        take_jars(folder, home)
    assert (home / "jars" / jars[1].name).read_bytes() == b"two"


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path, jars: list[Path]) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(IoError, match="could not write to folder") as error:
        save_jars(jars, tmp_path / "file" / "usb")
    assert error.value.code == "58030"
    save_jars(jars, tmp_path / "usb")
    with pytest.raises(IoError, match="could not copy jars") as error:
        take_jars(tmp_path / "usb", tmp_path / "file" / "home")
    assert error.value.code == "58030"
