"""When the archive of classes is written, kept and mapped."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from config.limits import CLASS_DUMP_STALE_SECONDS
from workers.lake.server.class_archive import ClassArchive
from workers.lake.server.java import Java


@pytest.fixture
def java(tmp_path: Path) -> Java:
    """A runtime with an archive of Java's standard classes."""
    home = tmp_path / "java"
    for folder in ("bin", "lib/server"):
        (home / folder).mkdir(parents=True)
    (home / "bin" / "java").touch()
    (home / "lib" / "server" / "classes.jsa").touch()
    return Java(home / "bin" / "java", 17)


def test_a_regular_end_keeps_the_archive_and_later_starts_map_it(
    java: Java, tmp_path: Path
) -> None:
    first = ClassArchive.of(java, ["a.jar"], tmp_path)
    assert first.partial is not None
    assert first.options()[0] == f"-XX:ArchiveClassesAtExit={first.partial}"
    first.finish(peacefully=True)  # the JVM wrote none
    first.partial.write_text("classes")
    first.finish(peacefully=True)
    later = ClassArchive.of(java, ["a.jar"], tmp_path)
    assert (later.path.read_text(), later.partial) == ("classes", None)
    assert later.options() == [f"-XX:SharedArchiveFile={later.path}"]
    assert ClassArchive.of(java, ["b.jar"], tmp_path).path != later.path


def test_what_a_killed_jvm_wrote_is_dropped(java: Java, tmp_path: Path) -> None:
    archive = ClassArchive.of(java, ["a.jar"], tmp_path)
    assert archive.partial is not None
    archive.partial.write_text("half")
    archive.finish(peacefully=False)
    assert not archive.partial.exists()
    assert not archive.path.exists()
    for name, age in (("old.1", CLASS_DUMP_STALE_SECONDS + 60), ("young.2", 0), ("whole.jsa", 1e9)):
        path = archive.path.parent / name
        path.touch()
        moment = max(0, time.time() - age)
        os.utime(path, (moment, moment))
    ClassArchive.of(java, ["a.jar"], tmp_path)
    assert {path.name for path in archive.path.parent.iterdir()} == {"young.2", "whole.jsa"}


def test_without_an_archive_of_the_standard_classes_none_is_written(
    java: Java, tmp_path: Path
) -> None:
    (java.path.parent.parent / "lib" / "server" / "classes.jsa").unlink()
    archive = ClassArchive.of(java, ["a.jar"], tmp_path)
    assert (archive.partial, archive.options()) == (None, [])
    assert archive.base is not None
    archive.base.parent.mkdir()
    archive.base.touch()
    second = ClassArchive.of(java, ["a.jar"], tmp_path)
    assert second.partial is not None
    assert second.options()[0] == f"-XX:SharedArchiveFile={second.base}"
