"""Which Java runtime is chosen, and the trust store for the wheel's runtime."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

import pytest

from catalog.errcodes import ObjectNotInPrerequisiteState
from workers.lake.server import java
from workers.lake.server.java import find_java, write_trust_store


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """A runtime of version 17, by its release file."""
    return runtime_of(tmp_path / "seventeen", "17.0.9")


def runtime_of(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\n')
    program = home / "bin" / "java"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def test_java_home_comes_before_the_path(
    runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = runtime_of(tmp_path / "twenty-one", "21")
    monkeypatch.setenv("JAVA_HOME", str(runtime.parent.parent))
    monkeypatch.setenv("PATH", str(other.parent))
    found = find_java()
    assert (found.path, found.version, found.bundled) == (runtime, 17, False)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    assert find_java().path == other


def test_a_runtime_of_a_version_that_spark_lacks_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    newest = runtime_of(tmp_path / "new", "25")
    monkeypatch.setattr(java, "_candidates", lambda: iter([(newest, False)]))
    caplog.set_level("INFO")
    with pytest.raises(
        ObjectNotInPrerequisiteState, match="no Java runtime of version 17 to 21"
    ) as refused:
        find_java()
    assert refused.value.detail == f"{newest} is of version 25."
    assert "version 25, Spark needs 17 to 21" in caplog.text


def test_a_runtime_that_does_not_say_its_version_is_skipped(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (runtime.parent.parent / "release").unlink()
    monkeypatch.setattr(java, "_candidates", lambda: iter([(runtime, True)]))
    with pytest.raises(ObjectNotInPrerequisiteState) as refused:
        find_java()
    assert refused.value.detail == f"{runtime} does not run."


def test_the_trust_store_begins_with_the_mark_of_java_s_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem = tmp_path / "ca.pem"
    pem.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    paths = ssl.get_default_verify_paths()._replace(cafile=str(pem))
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths)
    store = tmp_path / "trust.jks"
    assert write_trust_store(store)
    assert store.read_bytes()[:12] == bytes.fromhex("feedfeed0000000200000001")
    pem.write_text("no certificate\n")
    assert not write_trust_store(store)
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths._replace(cafile=""))
    assert not write_trust_store(store)
