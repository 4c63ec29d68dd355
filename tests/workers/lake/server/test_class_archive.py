"""When the archive of classes is written, kept and mapped."""

from __future__ import annotations

import lzma
import os
import time
from pathlib import Path

import pytest

from config.limits import CLASS_DUMP_STALE_SECONDS
from workers.lake.server.class_archive import ClassArchive, ensure_base
from workers.lake.server.java import Java
from workers.lake.server.packed_archive import packed


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
    first = ClassArchive.of(java, ["a.jar"], tmp_path, tmp_path)
    assert first.partial is not None
    assert first.options()[0] == f"-XX:ArchiveClassesAtExit={first.partial}"
    first.finish(peacefully=True)  # the JVM wrote none
    first.partial.write_text("classes")
    first.finish(peacefully=True)
    later = ClassArchive.of(java, ["a.jar"], tmp_path, tmp_path)
    assert (later.path.read_text(), later.partial) == ("classes", None)
    assert later.options() == [f"-XX:SharedArchiveFile={later.path}"]
    assert ClassArchive.of(java, ["b.jar"], tmp_path, tmp_path).path != later.path


def test_what_a_killed_jvm_wrote_is_dropped(java: Java, tmp_path: Path) -> None:
    archive = ClassArchive.of(java, ["a.jar"], tmp_path, tmp_path)
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
    ClassArchive.of(java, ["a.jar"], tmp_path, tmp_path)
    assert {path.name for path in archive.path.parent.iterdir()} == {"young.2", "whole.jsa"}


def test_without_an_archive_of_the_standard_classes_none_is_written(
    java: Java, tmp_path: Path
) -> None:
    (java.path.parent.parent / "lib" / "server" / "classes.jsa").unlink()
    archive = ClassArchive.of(java, ["a.jar"], tmp_path, tmp_path)
    assert (archive.partial, archive.options()) == (None, [])
    assert archive.base is not None
    archive.base.parent.mkdir()
    archive.base.touch()
    second = ClassArchive.of(java, ["a.jar"], tmp_path, tmp_path)
    assert second.partial is not None
    assert second.options()[0] == f"-XX:SharedArchiveFile={second.base}"


def test_a_server_with_more_jars_maps_the_archive_without_them(java: Java, tmp_path: Path) -> None:
    alone = ClassArchive.of(java, ["a.jar"], tmp_path, tmp_path, ["s3.jar"])
    assert alone.partial is not None
    alone.partial.touch()
    alone.finish(peacefully=True)
    common = ClassArchive.of(java, ["a.jar"], tmp_path, tmp_path)
    assert common.path != alone.path, "an archive with more jars is of no use without them"
    assert ClassArchive.of(java, ["a.jar"], tmp_path, tmp_path, ["s3.jar"]).partial is None
    common.path.touch()
    later = ClassArchive.of(java, ["a.jar"], tmp_path, tmp_path, ["s3.jar"])
    assert (later.path, later.partial) == (common.path, None)


@pytest.mark.parametrize("own", [True, False])
def test_a_packed_archive_is_unpacked_into_the_cache(java: Java, tmp_path: Path, own: bool) -> None:
    home, cache = tmp_path / "image", tmp_path / "cache"
    if not own:
        (java.path.parent.parent / "lib" / "server" / "classes.jsa").unlink()
    made = ClassArchive.of(java, ["a.jar"], home, cache)
    made.path.parent.mkdir(parents=True, exist_ok=True)
    for each in filter(None, (made.path, made.base)):
        with lzma.open(packed(each), "wb") as file:
            file.write(each.name.encode())
    ensure_base(java, home)  # runs no Java
    used = ClassArchive.of(java, ["a.jar"], home, cache, ["s3.jar"])
    assert used.partial is None
    assert used.path.read_text() == made.path.name
    assert used.path.is_relative_to(cache)
    both = [used.path] if own else [used.base, used.path]
    assert used.options() == [f"-XX:SharedArchiveFile={':'.join(map(str, both))}"]


def test_a_packed_archive_without_its_base_is_not_used(java: Java, tmp_path: Path) -> None:
    (java.path.parent.parent / "lib" / "server" / "classes.jsa").unlink()
    made = ClassArchive.of(java, ["a.jar"], tmp_path, tmp_path)
    made.path.parent.mkdir()
    packed(made.path).write_bytes(lzma.compress(b"classes"))
    assert ClassArchive.of(java, ["a.jar"], tmp_path, tmp_path).options() == []
