"""The queries of `queries.sql`, by name and server version."""

from __future__ import annotations

import re
from importlib import resources
from typing import Final

from catalog.errcodes import ProtocolViolation

_VARIABLE: Final = re.compile(r"(?<!:):([a-z_]+)")


def _read_queries() -> dict[str, str]:
    text = resources.files("workers.publisher").joinpath("queries.sql").read_text(encoding="utf-8")
    text = "".join(line for line in text.splitlines(True) if not re.match("-- (?!name: )", line))
    blocks = text.split("-- name: ")[1:]
    return {name: sql.strip() for name, _, sql in (block.partition("\n") for block in blocks)}


_SQL: Final = _read_queries()


def query(name: str, **values: str) -> str:
    """A statement of ``publication.sql`` with its variables replaced by finished SQL text."""
    return _VARIABLE.sub(lambda match: values[match[1]], _SQL[name])


def newest(name: str, server_version: int, *versions: int) -> str:
    """The variant of a query for this publisher: the newest that is not newer than it."""
    return f"{name}_{max(v for v in versions if v <= max(server_version, min(versions)))}"


def _text(value: str | None) -> str:
    if value is None:
        raise ProtocolViolation("publisher answered a catalog query with NULL")
    return value


def _number(value: str | None) -> int:
    return int(_text(value))
