"""What the tests of publications that change by themselves have in common."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from subscriber.commands.create_drop import create_subscription
from tests.subscriber.twins import Around, around, statement


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Around]:
    """A subscription with ``refresh: auto`` of table a, whose commands ended their sessions."""
    made = around(tmp_path)
    create_subscription(statement(refresh="auto"), made.context)
    made.notices.clear()
    yield made
    made.store.close()
    assert made.publisher.connections == 0
