"""Write a batch to the branches of its tables."""

from __future__ import annotations

from typing import Final

_NOT_UNIQUE: Final = "23505"
_COUNTED_TOGETHER: Final = 10
