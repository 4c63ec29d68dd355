"""``world``: a subscription without process or stream, ``loop``: with a worker's. ``sharing``:
some, into one lake table.
``watched``: a watch over the text of the tables.
``quiet_afterwards``: handlers that a test gave the root logger do not outlive it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.workers.looping import Loop, a_loop
from tests.workers.sharing import Make, Sharing
from tests.workers.subscribed import Subscribed
from tests.workers.watched_text import Watched
from workers.lake.memory.lake import MemoryLake


@pytest.fixture
def world() -> Iterator[Subscribed]:
    """Two tables in ``r``, their lake in memory."""
    made = Subscribed()
    yield made
    made.close()


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    """An apply worker's, on these tables."""
    with a_loop(tmp_path) as made:
        yield made


@pytest.fixture
def watched(world: Subscribed) -> Watched:
    """A watch over the text of the tables."""
    return Watched(world)


@pytest.fixture
def quiet_afterwards() -> Iterator[None]:
    """Remove and close what was added."""
    before = list(logging.getLogger().handlers)
    yield
    root = logging.getLogger()
    for handler in [each for each in root.handlers if each not in before]:
        root.removeHandler(handler)
        handler.close()


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


@pytest.fixture
def sharing(lake: MemoryLake) -> Iterator[Make]:
    made: list[Sharing] = []

    def make(
        uuid: str, *names: str, data_dir: Path | None = None, threads: int = 2, **declared: Any
    ) -> Sharing:
        made.append(Sharing(lake, uuid, names or ("a",), data_dir, threads, declared))
        return made[-1]

    yield make
    for each in made:
        each.close()
