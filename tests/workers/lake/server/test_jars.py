"""Where resolved jars lie, and the report of a jar that cannot be resolved."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from catalog.errcodes import IoError, ObjectNotInPrerequisiteState
from workers.lake.server import jars
from workers.lake.server.jars import ivy_home, put, resolve, resolved_jars, sha256, spark_home
from workers.lake.server.java import Java
from workers.lake.server.known_jars import JARS, POSTGRESQL, Jar


def test_spark_brings_its_jars_along() -> None:
    assert list((spark_home() / "jars").glob("spark-sql_*.jar"))


def test_the_launcher_finds_spark_without_an_import() -> None:
    ask = "import sys; from workers.lake.server.jars import spark_home; spark_home();"
    check = "sys.exit(bool({'numpy', 'pyspark'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", ask + check], check=False).returncode == 0


def test_resolved_jars_are_found_below_the_prefix_or_in_the_user_s_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix, cache = tmp_path / "prefix", tmp_path / "cache"
    monkeypatch.setattr(sys, "prefix", str(prefix))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    below = prefix / "share" / "pgsub" / "ivy"
    assert ivy_home() == below, "a folder that can be written to"
    found = cache / "pgsub" / "ivy" / "jars"
    found.mkdir(parents=True)
    for jar in JARS:
        (found / jar.file_name).touch()
    assert ivy_home() == found.parent, "jars that are there need no network"
    java = Java(tmp_path / "no java", 17)
    assert [path.parent for path in resolved_jars(java)] == [found] * len(JARS)


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("", "Ivy said nothing."),
        ("one\n:: problems ::\n\tjava.net.UnknownHostException: repo1\n", None),
        ("one\nmodule not found: a#b;1\n", "module not found: a#b;1."),
        ("one\ntwo\n", "two"),
    ],
)
def test_the_reason_is_a_line_of_ivy_s_report(output: str, reason: str | None) -> None:
    assert jars._reason(output) == (reason or "java.net.UnknownHostException: repo1.")


def test_the_named_repositories_come_before_maven_central(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DEFAULT_ARTIFACT_REPOSITORY", raising=False)
    conf = {"spark.jars.repositories": "https://one.example/a?b&c, https://two.example"}
    text = jars._write_settings(tmp_path, conf).read_text()
    places = [text.index(each) for each in ("one.example/a?b&amp;c", "two.example", "repo1.maven")]
    assert places == sorted(places)


def test_a_jar_that_no_repository_has_is_named_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "_run_ivy", lambda *_: "module not found: a#b;1")
    with pytest.raises(ObjectNotInPrerequisiteState, match=POSTGRESQL.coordinates) as error:
        resolve(Java(tmp_path / "no java", 17), [POSTGRESQL], tmp_path, {})
    assert error.value.detail == "module not found: a#b;1."
    assert error.value.hint is not None
    assert POSTGRESQL.file_name in error.value.hint


def test_a_jar_of_a_catalog_may_lie_in_the_user_s_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the environment is root's, and has the jars of every configuration."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    below = tmp_path / "prefix" / "share" / "pgsub" / "ivy" / "jars"
    cache = tmp_path / "cache" / "pgsub" / "ivy" / "jars"
    for folder, names in ((below, JARS), (cache, (POSTGRESQL,))):
        folder.mkdir(parents=True)
        for jar in names:
            (folder / jar.file_name).touch()
    found = resolved_jars(
        Java(tmp_path / "no java", 17), {}, {"uri": "jdbc:postgresql://host/lake"}
    )
    assert [path.parent for path in found] == [*([below] * len(JARS)), cache]


def test_files_of_a_module_are_one_dependency_of_ivy_s(tmp_path: Path) -> None:
    """Ivy drops the second of two dependencies on a module."""
    plain = Jar("a.group", "one", "1.0", "")
    text = jars._write_module(tmp_path, [plain, plain._replace(classifier="tests")]).read_text()
    assert text.count("<dependency ") == 1
    assert text.count("<artifact ") == 2
    assert 'm:classifier="tests"' in text
    assert text.count('ext="jar"') == 2


def test_a_file_that_is_no_jar_is_asked_for_by_its_ending(tmp_path: Path) -> None:
    server = Jar("a.group", "one", "1.0", "", extension="tar.gz")
    assert 'ext="tar.gz"' in jars._write_module(tmp_path, [server]).read_text()


def test_a_file_that_is_not_the_jar_is_refused_and_not_put(tmp_path: Path) -> None:
    file = tmp_path / "mirrored.jar"
    file.write_bytes(b"something else")
    with pytest.raises(IoError, match=JARS[0].artifact) as error:
        put(JARS[0], file, tmp_path)
    assert error.value.detail is not None
    assert JARS[0].sha256 in error.value.detail
    assert not list(tmp_path.rglob(JARS[0].file_name))


def test_a_jar_is_put_whole(tmp_path: Path) -> None:
    file = tmp_path / "mirrored.jar"
    file.write_bytes(b"classes")
    jar = JARS[0]._replace(sha256=sha256(file))
    assert put(jar, file, tmp_path).read_bytes() == b"classes"
    assert [path.name for path in (tmp_path / "jars").iterdir()] == [jar.file_name]
