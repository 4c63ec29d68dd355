"""Hadoop's defaults for MapReduce and YARN are no part of the lake server's configuration."""

from __future__ import annotations

import errno
import os
import uuid
import zipfile
from pathlib import Path

import pytest

from tests.fix_lake import Lake
from workers.lake.connect.session import LakeSession
from workers.lake.server.hadoop_defaults import LEFT_OUT, without_defaults
from workers.lake.server.jars import spark_home


def test_the_jar_has_files_of_these_names_without_a_key(tmp_path: Path) -> None:
    [jar] = without_defaults(tmp_path, {})
    with zipfile.ZipFile(jar) as file:
        assert file.namelist() == list(LEFT_OUT)
        for name in LEFT_OUT:
            assert b"<property>" not in file.read(name)
    assert list(tmp_path.iterdir()) == [jar]


def test_it_is_made_once(tmp_path: Path) -> None:
    """The archive of classes is void with a younger jar."""
    [jar] = without_defaults(tmp_path, {})
    os.utime(jar, (1, 1))
    assert without_defaults(tmp_path, {}) == (jar,)
    assert jar.stat().st_mtime == 1


def test_one_that_another_process_made_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [jar] = without_defaults(tmp_path, {})
    os.utime(jar, (1, 1))
    monkeypatch.setattr(Path, "is_file", lambda _: False)  # as it was when that was asked
    assert without_defaults(tmp_path, {}) == (jar,)
    assert jar.stat().st_mtime == 1
    assert list(tmp_path.iterdir()) == [jar]


def test_the_server_does_without_it_where_it_cannot_be_made(tmp_path: Path) -> None:
    assert without_defaults(tmp_path / "missing", {}) == ()


def test_nor_on_a_disk_that_only_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even to remove what is not there is refused then."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(zipfile, "ZipFile", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    assert without_defaults(tmp_path, {}) == ()


@pytest.mark.parametrize("key", ["spark.master", "spark.hadoop.yarn.resourcemanager.hostname"])
def test_all_stay_where_somebody_sets_one_of_hadoop_s(tmp_path: Path, key: str) -> None:
    assert without_defaults(tmp_path, {"spark.sql.shuffle.partitions": "1", key: "x"}) == ()
    assert not list(tmp_path.iterdir())


def test_hadoop_still_brings_them_along() -> None:
    [jar] = (spark_home() / "jars").glob("hadoop-client-api-*.jar")
    with zipfile.ZipFile(jar) as file:
        for name in LEFT_OUT:
            assert b"<property>" in file.read(name)


@pytest.mark.spark
@pytest.mark.parametrize("name", LEFT_OUT)
def test_the_server_finds_ours_first(lake_server: Lake, name: str) -> None:
    session = LakeSession(lake_server.url, "hadoop_defaults", str(uuid.uuid4()))
    loader = "java_method('java.lang.ClassLoader', 'getSystemResource'"
    found = session.query(f"SELECT {loader}, '{name}') AS found", "looking for a resource")
    assert "/without-hadoop-defaults.jar!" in found["found"][0].as_py()
