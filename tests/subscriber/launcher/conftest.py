"""``family``: a data directory and its launcher, for the tests of the launcher."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.subscriber.launcher_family import Family


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    with Family(tmp_path / "d") as made:
        yield made
