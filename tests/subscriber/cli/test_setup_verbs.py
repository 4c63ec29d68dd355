"""The verb that prepares a machine: what it gets, in which order, and what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from subscriber.cli import setup_verbs
from tests.shell import Shell
from workers.lake.server import jar_folder, jars, java


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What was done, without Java and without a network."""
    calls: list[str] = []
    resolved = tmp_path / "jars" / "one.jar"
    resolved.parent.mkdir()
    resolved.write_bytes(bytes(2_000_000))
    found = java.Java(tmp_path / "java", 17)

    def resolve(used: java.Java, conf: dict[str, str], catalog: dict[str, str]) -> tuple[Path, ...]:
        assert used is found
        calls.append(f"resolve {conf} {catalog}")
        return (resolved,)

    monkeypatch.setattr(java, "find_java", lambda: found)
    monkeypatch.setattr(jars, "resolved_jars", resolve)
    monkeypatch.setattr(jar_folder, "save_jars", lambda _jars, to: calls.append(f"save {to}"))
    monkeypatch.setattr(
        jar_folder, "take_jars", lambda of, _home, catalog: calls.append(f"take {of} {catalog}")
    )
    monkeypatch.setattr(setup_verbs, "_compile", lambda: calls.append("compile"))
    monkeypatch.setattr(setup_verbs, "_archive", lambda: calls.append("archive"))
    return calls


def test_everything_is_got_on_a_machine_with_a_network(
    pgsub: Shell, done: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "mirror.yaml"
    file.write_text(
        "spark: {conf: {spark.jars.repositories: mirror}}\nlake: {catalog: {type: rest}}\n"
        "subscriptions: {}\n"
    )
    ran = pgsub("fetch", str(file))
    assert done == [
        "resolve {'spark.jars.repositories': 'mirror'} {'type': 'rest'}",
        "compile",
        "archive",
    ]
    assert ran.out.splitlines() == [
        f"jars: 1 files, 2 MB in {tmp_path / 'jars'}",
        "kernels: ready after 0 s",
        "class archive: ready after 0 s",
    ]
    assert (ran.status, pgsub.data_dir.exists()) == (0, False)


def test_jars_of_a_folder_are_taken_before_any_is_resolved(pgsub: Shell, done: list[str]) -> None:
    assert pgsub("fetch", "--from", "/usb").status == 0
    assert done == ["take /usb {}", "resolve {} {}", "compile", "archive"]


def test_a_folder_gets_the_jars_only(pgsub: Shell, done: list[str]) -> None:
    ran = pgsub("fetch", "--to", "/usb")
    assert (ran.status, done) == (0, ["resolve {} {}", "save /usb"])
    assert "pgsub fetch --from /usb" in ran.out


def test_both_ways_at_once_are_a_mistake(pgsub: Shell, done: list[str]) -> None:
    ran = pgsub("fetch", "--to", "a", "--from", "b")
    assert (ran.status, done) == (2, [])
    assert "--to and --from cannot be used together" in ran.err
