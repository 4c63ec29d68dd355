"""A table of two columns without a lake server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.workers.lake.files.layouts import known, metadata
from workers.lake.files.table_layout import TableLayout


@pytest.fixture
def files(tmp_path: Path) -> TableLayout:
    return known(metadata(location=str(tmp_path)))
