"""A subscription's password has one place."""

from __future__ import annotations

import pytest

from catalog.errcodes import ConfigFileError
from config.load import parse


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("password_env: E, password_command: c", "password_env and password_command are exclusive"),
        ("password_command: c", None),
        ("password_command: c, password_command_ttl: 10min", None),
    ],
)
def test_a_password_has_one_place(given: str, message: str | None) -> None:
    text = f"subscriptions: {{s: {{connection: host=db, {given}, publication: p}}}}"
    if message is not None:
        with pytest.raises(ConfigFileError, match=message):
            parse(text, "f.yaml")
        return
    (stmt,) = parse(text, "f.yaml").subscriptions
    assert stmt.password_command == "c"
    assert stmt.password_command_ttl == (600.0 if "ttl" in given else 0.0)
