"""Publish what was written: move each table's `main` to its branch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from workers.tables.written import Written

_PUBLISH_ATTEMPTS: Final = 5


def _nothing(_: Sequence[Written]) -> None:
    """Nothing else is stored with a batch."""
