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


@pytest.mark.parametrize("given", ["soon", "-1", "true"])
def test_a_bad_time_to_keep_a_password_has_a_remedy(given: str) -> None:
    key = f"password_command: c, password_command_ttl: {given}"
    text = f"subscriptions: {{s: {{connection: host=db, {key}, publication: p}}}}"
    with pytest.raises(ConfigFileError, match="password_command_ttl") as refused:
        parse(text, "f.yaml")
    assert str(refused.value.hint).startswith('Write a number with a unit, such as "5s".')
