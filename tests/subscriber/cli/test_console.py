"""The console script: its verbs, their help, and mistakes in the arguments."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.shell import Shell, run_apart

VERBS = [
    "demo",
    "up",
    "run",
    "create",
    "drop",
    "enable",
    "disable",
    "skip",
    "refresh",
    "alter",
    "exec",
    "status",
    "reset-stats",
    "wait",
    "sql",
    "check",
]


def test_help_names_every_verb(pgsub: Shell) -> None:
    ran = pgsub("--help")
    assert ran.status == 0
    assert [verb for verb in VERBS if f"  {verb} " not in ran.out] == []


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(pgsub: Shell, verb: str) -> None:
    ran = pgsub(verb, "--help")
    assert ran.status == 0
    assert "Usage" in ran.out


def test_help_and_version_are_fast_and_load_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['pgsub', '--version']; from subscriber.cli import main; main();"
        "heavy = {'pyspark', 'pyarrow', 'numba', 'psycopg', 'pydantic_core', 'yaml', 'rich'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    version, heavy = done.stdout.splitlines()
    assert version.startswith("pgsub ")
    assert json.loads(heavy.replace("'", '"')) in ([], ["pydantic_core"])


@pytest.mark.parametrize(
    "words",
    [
        ["nosuch"],
        ["status", "--format", "xml"],
        ["drop"],
        ["run", "--nosuch"],
        ["wait", "mysub", "--lsn", "zz"],
        ["wait", "mysub", "--timeout", "-1"],
        ["skip", "mysub"],
        ["skip", "mysub", "--lsn"],
        ["create", "no such file.yaml"],
        ["exec", "-f", "no such file.sql"],
        ["exec", "-f", "a.sql", "DROP SUBSCRIPTION s"],
        ["alter", "mysub"],
        ["up", "no such file.yaml"],
        ["check", "no such file.yaml"],
    ],
)
def test_mistakes_in_the_arguments(pgsub: Shell, words: list[str]) -> None:
    ran = pgsub(*words)
    assert (ran.status, ran.out) == (2, "")
    assert "Traceback" not in ran.err
    assert not pgsub.data_dir.exists()


def test_the_command_itself() -> None:
    done = run_apart(["nosuch"])
    assert done.returncode == 2
