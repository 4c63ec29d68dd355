"""When a table's dead rows are too many; no server."""

from __future__ import annotations

from dataclasses import replace

import pytest

from config.guc import Settings
from workers.tables.maintenance.vacuum_due import DeletedRows, vacuum_is_due

DUE = DeletedRows(rows=1_200_000, deleted=400_000)


@pytest.mark.parametrize(
    ("dead", "due"),
    [
        (DeletedRows(), False),
        (DUE, True),
        (replace(DUE, deleted=260_000), False),  # 100,000 + 0.2 × 940,000
        (replace(DUE, deleted=250_001, rows=1_000_005), True),
        (replace(DUE, not_found=150_000), False),
        (replace(DUE, deleted=1_000_000, not_found=730_000), False),  # 100,000 + 0.2 × 930,000
        (replace(DUE, deleted=1_000_000, not_found=650_000), True),
    ],
)
def test_a_vacuum_is_due_as_postgresql_s(dead: DeletedRows, due: bool) -> None:
    assert vacuum_is_due(dead, Settings()) is due
