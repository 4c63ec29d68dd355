"""``pgsub`` as a user types it, for tests of what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from subscriber import cli

NAME = "bad_input"
"""The subscription, and so its slot."""

PASSWORD = "it's a \\ secret:"
ROLE_PASSWORD = "planted"
PLANTED = (PASSWORD, ROLE_PASSWORD)
"""No command may print one of these."""

COMMAND = (sys.executable, "-c", "import sys; from subscriber.cli import main; sys.exit(main())")


def run_apart(words: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """One command in a process of its own."""
    return subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, check=False, **options
    )


@dataclass(frozen=True)
class Ran:
    """How a command ended and what it printed."""

    status: int
    out: str
    err: str


@dataclass(frozen=True)
class Shell:
    """``pgsub`` in this process, which saves the imports, on a data directory not there yet."""

    data_dir: Path
    monkeypatch: pytest.MonkeyPatch
    capfd: pytest.CaptureFixture[str]

    def __call__(self, *words: str) -> Ran:
        self.monkeypatch.setattr(sys, "argv", ["pgsub", "--data-dir", str(self.data_dir), *words])
        status = cli.main()
        ran = Ran(status, *self.capfd.readouterr())
        assert "Traceback" not in ran.err
        assert not any(secret in ran.err + ran.out for secret in PLANTED)
        return ran

    def file(self, content: str | dict[str, Any]) -> str:
        """A configuration file."""
        path = self.data_dir.parent / "subscription.yaml"
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return str(path)

    def create(self, connection: str, *, verb: str = "create", **keys: Any) -> Ran:
        """CREATE, or another verb, of one subscription."""
        body = {"connection": connection, "publication": ["pub"]}
        body |= {key.rstrip("_"): value for key, value in keys.items()}
        return self(verb, self.file({"subscriptions": {NAME: body}}))

    def refused(self, sqlstate: str, said: str, hint: str, connection: str, **keys: Any) -> None:
        """CREATE, check and up say the same, and leave nothing."""
        for verb in ("create", "check", "up"):
            ran = self.create(connection, verb=verb, **keys)
            assert ran.status == 1, ran
            assert f"ERROR:  {sqlstate}: " in ran.err, ran
            assert said in ran.err, ran
            assert hint in ran.err.partition("HINT:")[2], ran
            assert ran.out == (
                "" if verb != "check" else f'subscription "{NAME}" would be rejected\n'
            )
        self.holds_nothing()

    def holds_nothing(self) -> None:
        """No row in the catalog, no password in a file."""
        assert json.loads(self("status", "pg_subscription", "--format", "json").out) == []
        assert not list(self.data_dir.rglob("passfile/*"))
