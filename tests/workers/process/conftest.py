"""A data directory, and the launcher's end of its socket."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.process.launcher_peer import Peer


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return Path(os.path.relpath(tmp_path)) if len(str(tmp_path)) > 90 else tmp_path


@pytest.fixture
def peer(data_dir: Path) -> Iterator[Peer]:
    made = Peer(data_dir)
    yield made
    made.close()
