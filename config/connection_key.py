"""Check the keys of a subscription that say where the publisher and the password are.

Apart from ``config.conninfo``, because pydantic is slow to load and a worker needs no key.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationInfo

from catalog.errcodes import ReplicationError, SyntaxErrorOrAccess
from config.conninfo import Conninfo, split_password
from config.problem import problem


def read_connection(value: Any, info: ValidationInfo) -> Conninfo:
    """The value of ``connection``, for pydantic; files in it are relative to the file's folder."""
    if not isinstance(value, str):
        raise problem(SyntaxErrorOrAccess("connection requires a libpq connection string"))
    try:
        return split_password(value, (info.context or {}).get("folder"))
    except ReplicationError as error:
        raise problem(error) from None


def check_one_password(connection: Conninfo, env: str | None, command: str | None) -> None:
    """Raise a pydantic error if a subscription's password has two places."""
    given = {
        "password in connection": connection.password,
        "password_env": env,
        "password_command": command,
    }
    places = [place for place, value in given.items() if value is not None]
    if len(places) > 1:
        said = f"{places[0]} and {places[1]} are exclusive"
        raise problem(SyntaxErrorOrAccess(said), places[1])
