"""Carry a mistake with an SQLSTATE from inside a pydantic model to the loader.

pydantic collects errors with their places, but only pydantic's kinds of errors. A pydantic error
carries the ``ReplicationError`` to the loader, and the loader adds file, line and key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic_core import PydanticCustomError

from catalog.errcodes import ReplicationError

PROBLEM: Final = "pgsub_problem"
"""The pydantic error type with a ``ReplicationError`` inside."""


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
    """The error and the key below pydantic's place; (None, ()) for an error of pydantic."""
    if details["type"] != PROBLEM:
        return None, ()
    context = details["ctx"]
    return context["error"], context["key"]
