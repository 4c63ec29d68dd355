"""Where resolved jars lie, and the report of a jar that cannot be resolved."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from workers.lake.server import jars
from workers.lake.server.jars import COORDINATES, ivy_home, resolved_jars, spark_home
from workers.lake.server.java import Java


def test_spark_brings_its_jars_along() -> None:
    assert list((spark_home() / "jars").glob("spark-sql_*.jar"))


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
    for group, artifact, version in COORDINATES:
        (found / f"{group}_{artifact}-{version}.jar").touch()
    assert ivy_home() == found.parent, "jars that are there need no network"
    java = Java(tmp_path / "no java", 17)
    assert [path.parent for path in resolved_jars(java)] == [found] * len(COORDINATES)


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
