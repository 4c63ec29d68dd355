"""One ``pgsub`` family (launcher, lake server) and one native twin for the whole run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import SETTINGS, Pgsub
from tests.twin import NativeTwin


@pytest.fixture(scope="session")
def twin() -> Iterator[NativeTwin]:
    """A PostgreSQL 18 whose own workers subscribe beside ours."""
    made = NativeTwin(18)
    with made.server:
        yield made


@pytest.fixture(scope="session")
def pgsub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pgsub]:
    """A running family with no subscription; create yours, under names and schemas of your own."""
    made = Pgsub(tmp_path_factory.mktemp("pgsub") / "data", almighty=False)
    made.up({"subscriptions": {}, "settings": SETTINGS})
    yield made
    assert made.stop() == 0, made.log_tail()


@pytest.fixture
def own_pgsub(tmp_path: Path) -> Iterator[Pgsub]:
    """A data directory of the test's own; nothing runs on it yet."""
    made = Pgsub(tmp_path / "data")
    yield made
    made.stop()
