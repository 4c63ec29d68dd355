"""``world``: a site of twins, empty, for the tests of commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.subscriber.twins import Around, around


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Around]:
    """Nothing is subscribed; every connection to the publisher is closed in the end."""
    made = around(tmp_path)
    yield made
    made.store.close()
    assert made.publisher.connections == 0
