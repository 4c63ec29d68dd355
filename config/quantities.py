"""Quantities with a unit, as in PostgreSQL's settings: times and memory sizes.

The module loads at once, without the model of the settings: ``pgsub status`` needs no more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from catalog.errcodes import InvalidParameterValue

_MINUTE: Final = 60 * 10**6
TIME_UNITS: Final = {
    "us": 1,
    "ms": 10**3,
    "s": 10**6,
    "min": _MINUTE,
    "h": 60 * _MINUTE,
    "d": 24 * 60 * _MINUTE,
}
"""Unit → microseconds."""

MEMORY_UNITS: Final = {"B": 1, "kB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
"""Unit → bytes."""

_QUANTITY: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([A-Za-z]*)\s*")


def parse_duration(text: str | int | float, base: str = "ms", name: str = "") -> float:
    """A PostgreSQL time as seconds; a number without unit counts ``base`` units.

    Rounded to whole ``base`` units, as PostgreSQL does. Any further text is 22023.
    """
    units = _round(_quantity(text, base, TIME_UNITS, name), TIME_UNITS[base])
    return units * TIME_UNITS[base] / 10**6


def parse_memory(text: str | int | float, base: str = "kB", name: str = "") -> int:
    """A PostgreSQL memory size as bytes; a number without unit counts ``base`` units."""
    return (
        _round(_quantity(text, base, MEMORY_UNITS, name), MEMORY_UNITS[base]) * MEMORY_UNITS[base]
    )


def format_duration(seconds: float) -> str:
    """Seconds as ``SHOW`` prints them: in the largest unit that leaves a whole number."""
    return _format(round(seconds * 10**6), TIME_UNITS, "0")


def format_memory(size: int) -> str:
    """Bytes as ``SHOW`` prints them."""
    return _format(size, MEMORY_UNITS, "0")


def pretty_size(size: int) -> str:
    """Bytes as ``pg_size_pretty`` prints them: rounded, in a unit that leaves few digits."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 10240:
            return f"{size} {unit}"
        size = (size + 512) // 1024
    return f"{size} TB"


def _quantity(text: str | int | float, base: str, units: Mapping[str, int], name: str) -> float:
    match = None if isinstance(text, bool) else _QUANTITY.fullmatch(str(text))
    if match is None:
        raise InvalidParameterValue(
            f'invalid value for parameter "{name}": "{text}"', hint=quantity_hint(base)
        )
    number, unit = match.groups()
    factor = units.get(unit or base)
    if factor is None:
        raise InvalidParameterValue(
            f'invalid value for parameter "{name}": "{text}"', hint=_valid(units)
        )
    return float(number) * factor


def quantity_hint(base: str) -> str:
    """The remedy for text that is no quantity; ``base`` is the unit of a number without unit."""
    units, example = (TIME_UNITS, "5s") if base in TIME_UNITS else (MEMORY_UNITS, "64MB")
    return f'Write a number with a unit, such as "{example}". {_valid(units)}'


def _valid(units: Mapping[str, int]) -> str:
    """PostgreSQL's HINT about units."""
    *others, last = (f'"{unit}"' for unit in units)
    return f"Valid units for this parameter are {', '.join(others)}, and {last}."


def _round(amount: float, unit: int) -> int:
    """``amount`` in whole ``unit``s, halves to even as C's rint does."""
    return round(amount / unit)


def _format(amount: int, units: dict[str, int], zero: str) -> str:
    for unit, factor in reversed(units.items()):
        if amount and amount % factor == 0:
            return f"{amount // factor}{unit}"
    return zero


DEFAULT_SPOOL_LIMIT: Final = "16GB"
"""The default of the setting ``spool_max_size``."""


def stored_spool_max_size(stored: Mapping[str, Any]) -> int:
    """The setting ``spool_max_size`` of the stored settings, without their model."""
    text = stored.get("settings", {}).get("spool_max_size", DEFAULT_SPOOL_LIMIT)
    return parse_memory(text, name="spool_max_size")
