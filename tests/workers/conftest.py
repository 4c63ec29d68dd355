"""``world``: a subscription without process or stream. ``quiet_afterwards``: handlers that a test
gave the root logger do not outlive it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.workers.subscribed import Subscribed


@pytest.fixture
def world() -> Iterator[Subscribed]:
    """Two tables in ``r``, their lake in memory."""
    made = Subscribed()
    yield made
    made.close()


@pytest.fixture
def quiet_afterwards() -> Iterator[None]:
    """Remove and close what was added."""
    before = list(logging.getLogger().handlers)
    yield
    root = logging.getLogger()
    for handler in [each for each in root.handlers if each not in before]:
        root.removeHandler(handler)
        handler.close()
