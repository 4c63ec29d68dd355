"""Read an address to listen on: ``off``, a port, or a host and a port.

A port alone is a port of the loopback interface: whoever wants to be reached from elsewhere says
so, with a host. An IPv6 address stands in brackets, as in ``[::]:9187``.
"""

from __future__ import annotations

import re
from typing import Any, Final

from catalog.errcodes import InvalidParameterValue

LOOPBACK: Final = "127.0.0.1"
OFF: Final = "off"
_LARGEST_PORT: Final = 65535
_ADDRESS: Final = re.compile(r"(?:(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):)?([0-9]{1,5})")


def parse_listen_address(value: Any, name: str) -> tuple[str, int] | None:
    """Host and port of the setting ``name``; None for ``off``; 22023 for any other text."""
    if value is False or value == OFF:  # YAML reads the word as a boolean
        return None
    found = _ADDRESS.fullmatch(str(value)) if isinstance(value, str | int) else None
    port = int(found[2]) if found and value is not True else 0
    if found is None or not 0 < port <= _LARGEST_PORT:
        raise InvalidParameterValue(
            f'invalid value for parameter "{name}": "{value}"',
            hint='Write off, a port such as 9187, or a host and a port such as "0.0.0.0:9187".',
        )
    return (found[1] or LOOPBACK).strip("[]"), port


def listen_address(value: Any, name: str) -> str:
    """The address in its normal spelling, ``host:port`` or ``off``."""
    found = parse_listen_address(value, name)
    if found is None:
        return OFF
    host, port = found
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
