"""How much of its limits the lake server uses, and when the launcher starts a new server.

A JVM that runs for months may use up what the system or the configuration allows: descriptors,
threads, heap, sessions. At the limit every call fails, and the error often names something else. So
the launcher starts a new server before, between batches.

==========  ========================  =============================================
urgency     share of a limit          the launcher
==========  ========================  =============================================
``SOON``    three quarters            waits until no worker copies a table
``NOW``     nine tenths               does not wait
==========  ========================  =============================================

The heap counts as it was after the last full collection: a heap may be full of garbage at any
moment, but what a collection leaves is in use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from config.limits import (
    LAKE_BUDGET_NOW_SHARE,
    LAKE_BUDGET_SOON_SHARE,
    LAKE_SESSIONS,
    LAKE_THREADS,
)


class Urgency(IntEnum):
    """How soon the launcher starts a new server."""

    SOON = 1
    NOW = 2


@dataclass(frozen=True, slots=True)
class Health:
    """What the server uses; 0 where the system does not tell."""

    descriptors: int = 0
    descriptor_limit: int = 0
    threads: int = 0
    heap_bytes: int = 0
    heap_limit_bytes: int = 0
    sessions: int = 0

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Health:
        """The health from a message of the watching process."""
        return cls(**{name: int(fields.get(name, 0)) for name in cls.__slots__})


@dataclass(frozen=True, slots=True)
class Excess:
    """The resource of which the server uses too much."""

    urgency: Urgency
    what: str


def excess_of(health: Health) -> Excess | None:
    """The most urgent excess; None if the server is within its limits."""
    found = [
        Excess(urgency, f"it uses {used} of {limit} {name}")
        for name, used, limit in (
            ("descriptors", health.descriptors, health.descriptor_limit),
            ("threads", health.threads, LAKE_THREADS),
            ("sessions", health.sessions, LAKE_SESSIONS),
            ("bytes of heap", health.heap_bytes, health.heap_limit_bytes),
        )
        if (urgency := _urgency(used, limit)) is not None
    ]
    return max(found, key=lambda each: each.urgency, default=None)


def _urgency(used: int, limit: int) -> Urgency | None:
    if limit <= 0 or used < LAKE_BUDGET_SOON_SHARE * limit:
        return None
    return Urgency.NOW if used >= LAKE_BUDGET_NOW_SHARE * limit else Urgency.SOON
