"""placeholder"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workers.lake.destination import CopyPlan


def run_copy(writer: Any, plan: CopyPlan, progress: Callable[[int, int], None]) -> int:
    """placeholder"""
    raise NotImplementedError
