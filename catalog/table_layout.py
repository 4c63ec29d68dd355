"""How a new lake table is partitioned and sorted, in the words of the configuration.

A word names a column, maybe with one of Iceberg's transforms: ``region``, ``days(created_at)``,
``bucket(16, id)``, ``truncate(4, "Zip Code")``. A sort word may go on with ``ASC`` or ``DESC`` and
``NULLS FIRST`` or ``NULLS LAST``, with PostgreSQL's defaults. Names are verbatim; a name with a
blank, a comma, a parenthesis or a quote is written in double quotes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from catalog.errcodes import SyntaxErrorOrAccess

_COLUMN: Final = r'"(?:[^"]|"")+"|[^\s"(),]+'
_WORD: Final = re.compile(
    rf"\s*(?:(?P<transform>[a-z]+)\s*\(\s*(?:(?P<width>\d+)\s*,\s*)?(?P<inner>{_COLUMN})\s*\)"
    rf"|(?P<plain>{_COLUMN}))(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_SORT: Final = re.compile(
    r"(?:\s+(?P<direction>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?\s*", re.IGNORECASE
)
_TRANSFORMS: Final = ("identity", "bucket", "truncate", "year", "month", "day", "hour")
_WITH_WIDTH: Final = ("bucket", "truncate")
_MOST: Final = 2**31 - 1
_HINT: Final = (
    "Write a column, or years, months, days or hours of a column as in days(created_at), or "
    "bucket(16, id) or truncate(4, name)."
)


@dataclass(frozen=True, slots=True)
class LayoutField:
    """A column with a transform; ``width`` is of ``bucket`` and ``truncate``."""

    column: str
    transform: str = "identity"
    width: int = 0
    descending: bool = False
    nulls_first: bool = False

    @property
    def iceberg_name(self) -> str:
        """The transform in Iceberg's metadata."""
        return f"{self.transform}[{self.width}]" if self.width else self.transform


def partition_field(word: str) -> LayoutField:
    """A word of ``partition_by``; 42601 for any other text."""
    field, rest = _field(word, "partition_by")
    if rest.strip():
        raise _invalid(word, "partition_by")
    return field


def sort_field(word: str) -> LayoutField:
    """A word of ``sort_by``; 42601 for any other text."""
    field, rest = _field(word, "sort_by")
    found = _SORT.fullmatch(rest)
    if found is None:
        raise _invalid(word, "sort_by")
    descending = (found["direction"] or "").lower() == "desc"
    nulls = (found["nulls"] or ("first" if descending else "last")).lower()
    return LayoutField(field.column, field.transform, field.width, descending, nulls == "first")


def _field(word: str, option: str) -> tuple[LayoutField, str]:
    found = _WORD.fullmatch(word)
    if found is None:
        raise _invalid(word, option)
    if found["plain"]:
        return LayoutField(_name(found["plain"])), found["rest"]
    transform = found["transform"].lower()
    transform = transform if transform in _TRANSFORMS else transform.removesuffix("s")
    width = int(found["width"] or 0)
    fits = 0 < width <= _MOST if transform in _WITH_WIDTH else found["width"] is None
    if transform not in _TRANSFORMS or not fits:
        raise _invalid(word, option)
    return LayoutField(_name(found["inner"]), transform, width), found["rest"]


def _name(text: str) -> str:
    return text[1:-1].replace('""', '"') if text.startswith('"') else text


def _invalid(word: str, option: str) -> SyntaxErrorOrAccess:
    return SyntaxErrorOrAccess(f'invalid entry in {option}: "{word}"', hint=_HINT)
