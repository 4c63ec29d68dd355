"""How a mistake found inside a pydantic model keeps its SQLSTATE on the way to the loader.

pydantic collects errors with the place they were found at, and only of its own kinds; so a
``ReplicationError`` travels inside one, and the loader takes it out and adds file, line and key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic_core import PydanticCustomError

from catalog.errcodes import ReplicationError

PROBLEM: Final = "pgsub_problem"
"""The pydantic error type that carries a ``ReplicationError``."""


def problem(error: ReplicationError, *key: str) -> PydanticCustomError:
    """Wrap ``error`` for a validator to raise; ``key`` points further down than the validator."""
    return PydanticCustomError(
        PROBLEM,
        "{primary}",
        {
            "primary": error.primary,
            "error": error,
            "key": key,
        },
    )


def unwrap(details: Mapping[str, Any]) -> tuple[ReplicationError | None, tuple[str, ...]]:
    """The error and the key below the place pydantic names; (None, ()) for pydantic's own."""
    if details["type"] != PROBLEM:
        return None, ()
    context = details["ctx"]
    return context["error"], context["key"]
