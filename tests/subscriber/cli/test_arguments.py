"""Errors about an argument's text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shell import Ran, Shell


@pytest.mark.parametrize("verb", ["create", "up", "check"])
def test_mistakes_in_the_file(pgsub: Shell, tmp_path: Path, verb: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("subscriptions: {s: {connection: password=hidden x, publication: p}}")
    ran = pgsub(verb, str(file))
    assert ran.status == 2
    assert ran.err.startswith(f'ERROR:  42601: configuration file "{file}", line 1, key ')
    assert "hidden" not in ran.err
    assert not pgsub.data_dir.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["skip", "mysub", "--lsn", "Zz"], '22P02: invalid input syntax for type pg_lsn: "Zz"'),
        (["skip", "mysub", "--lsn", ""], '22P02: invalid input syntax for type pg_lsn: ""'),
        (["skip", "mysub", "--lsn", "0/0"], "22023: invalid WAL location (LSN): 0/0"),
        (["wait", "mysub", "--lsn", "none"], '22P02: invalid input syntax for type pg_lsn: "none"'),
    ],
)
def test_what_is_no_position(pgsub: Shell, words: list[str], said: str) -> None:
    """SQL's errors, seen before anything is opened."""
    assert pgsub(*words) == Ran(2, "", f"ERROR:  {said}\n")
    assert not pgsub.data_dir.exists()
