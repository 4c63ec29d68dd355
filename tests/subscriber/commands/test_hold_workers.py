"""No worker runs while a command holds the data directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from subscriber.commands.hold_workers import hold_workers
from tests.subscriber.launcher_family import Family
from tests.waiting import wait_until
from workers.process.worker_slots import LogicalRepWorker


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    with Family(tmp_path / "d") as made:
        yield made


def reported(family: Family, subid: int, name: str, value: Any) -> LogicalRepWorker:
    """Wait until the apply worker has reported something."""

    def found() -> LogicalRepWorker | None:
        row = family.worker(subid)
        return row if row is not None and getattr(row, name) == value else None

    return wait_until(found, 20, family.log)


def test_without_a_launcher_the_family_lock_is_held(tmp_path: Path) -> None:
    locked: list[bool] = []
    with hold_workers(tmp_path, 1, wait=1, lock=lambda: locked.append(True)):
        assert locked == [True]
