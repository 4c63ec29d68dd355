"""Read the statements of ``queries.sql`` by name, in the variant for a server version."""

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
    """A statement of ``queries.sql``, with finished SQL text in the place of each variable."""
    return _VARIABLE.sub(lambda match: values[match[1]], _SQL[name])


def newest(name: str, server_version: int, *versions: int) -> str:
    """The name of a query's variant for a server: the newest variant that the server knows."""
    return f"{name}_{max(v for v in versions if v <= max(server_version, min(versions)))}"


def to_text(value: str | None) -> str:
    """A value that the catalog cannot hold as NULL; raises 08P01 for NULL."""
    if value is None:
        raise ProtocolViolation("publisher answered a catalog query with NULL")
    return value


def to_number(value: str | None) -> int:
    """A number that the catalog cannot hold as NULL; raises 08P01 for NULL."""
    return int(to_text(value))
