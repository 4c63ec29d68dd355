"""The types that the product knows by their OID."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from workers.columnar.binary.forms import BUILT_IN, BUILT_IN_RANGES


def built_in_types() -> Iterable[tuple[str, int, Any]]:
    """(name, OID, (kind, output, send) or the OID of a range's bounds)."""
    for name, oid, _, kind, output, send in BUILT_IN:
        yield name, oid, (kind, output, send)
    for name, oid, _, bounds, _, _ in BUILT_IN_RANGES:
        yield name, oid, bounds
