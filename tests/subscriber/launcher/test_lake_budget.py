"""When the lake server has used up so much that a new server is due."""

from __future__ import annotations

import pytest

from config.limits import LAKE_SESSIONS, LAKE_THREADS
from subscriber.launcher.lake_budget import Excess, Health, Urgency, excess_of


@pytest.mark.parametrize(
    ("health", "urgency", "what"),
    [
        (Health(descriptors=749, descriptor_limit=1000), None, ""),
        (Health(descriptors=750, descriptor_limit=1000), Urgency.SOON, "750 of 1000 descriptors"),
        (Health(descriptors=900, descriptor_limit=1000), Urgency.NOW, "900 of 1000 descriptors"),
        (Health(threads=LAKE_THREADS), Urgency.NOW, "threads"),
        (Health(sessions=LAKE_SESSIONS - 1), Urgency.NOW, "sessions"),
        (Health(heap_bytes=74, heap_limit_bytes=100), None, ""),
        (Health(heap_bytes=75, heap_limit_bytes=100), Urgency.SOON, "75 of 100 bytes of heap"),
        (Health(heap_bytes=95, heap_limit_bytes=100), Urgency.NOW, "bytes of heap"),
        (
            Health(descriptors=80, descriptor_limit=100, heap_bytes=99, heap_limit_bytes=100),
            Urgency.NOW,
            "bytes of heap",
        ),
        (Health(descriptors=5000, heap_bytes=10**9), None, ""),
        (Health(), None, ""),
    ],
)
def test_excess(health: Health, urgency: Urgency | None, what: str) -> None:
    found = excess_of(health)
    if urgency is None:
        assert found is None
    else:
        assert isinstance(found, Excess)
        assert found.urgency is urgency
        assert what in found.what


def test_health_is_read_from_a_message_of_any_version() -> None:
    assert Health.from_json({"descriptors": 7, "of a later version": 1}) == Health(descriptors=7)
