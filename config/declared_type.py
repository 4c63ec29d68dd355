"""The types that a column may have in the lake by the configuration: ``type:`` of a column.

The words are ``string``, ``decimal(p,s)``, ``timestamp`` and ``binary``. The publisher's type has
to fit; ``workers.changes.declared_type`` decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from catalog.errcodes import (
    FeatureNotSupported,
    InvalidParameterValue,
    ReplicationError,
    UndefinedObject,
)

STRING: Final = "string"
DECIMAL: Final = "decimal"
TIMESTAMP: Final = "timestamp"
BINARY: Final = "binary"

_MOST_DIGITS: Final = 38
_WORD: Final = re.compile(r"\s*(\w+)\s*(?:\(\s*(\d{1,4})\s*,\s*(\d{1,4})\s*\)\s*)?", re.ASCII)
_NOT_WRITTEN: Final = {
    "uuid": "Spark reads and writes Iceberg's uuid as text, so the column would be a string to it.",
    "variant": "pgsub writes data files itself, and Arrow has no writer for Parquet's variant.",
}
_HINT: Final = "Write string, decimal(p,s), timestamp or binary."


@dataclass(frozen=True, slots=True)
class DeclaredType:
    """A type of the lake; ``precision`` and ``scale`` are of a decimal."""

    kind: str
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        return f"{self.kind}({self.precision},{self.scale})" if self.precision else self.kind


def declared_type(text: str) -> DeclaredType:
    """The type; 42704 for an unknown word, 0A000 for one that is not written, 22023 for digits."""
    found = _WORD.fullmatch(text)
    kind = "" if found is None else found[1].lower()
    digits = None if found is None or found[2] is None else (int(found[2]), int(found[3]))
    if kind in _NOT_WRITTEN and digits is None:
        raise FeatureNotSupported(
            f"a lake column cannot be of type {kind}", detail=_NOT_WRITTEN[kind], hint=_HINT
        )
    if kind == DECIMAL and digits is not None:
        precision, scale = digits
        if not (1 <= precision <= _MOST_DIGITS and scale <= precision):
            raise _digits(text)
        return DeclaredType(kind, precision, scale)
    if kind in (STRING, TIMESTAMP, BINARY) and digits is None:
        return DeclaredType(kind)
    raise UndefinedObject(f'type "{text}" does not exist in the lake', hint=_HINT)


def _digits(text: str) -> ReplicationError:
    return InvalidParameterValue(
        f'invalid precision or scale of type "{text}"',
        hint=f"A decimal has 1 to {_MOST_DIGITS} digits, and at most all of them are behind the "
        "point.",
    )
