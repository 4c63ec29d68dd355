"""A sync worker without a sign is stopped, a slow one is not."""

from __future__ import annotations

from config.limits import SYNC_STANDSTILL_SECONDS
from workers.apply.standstill import StandstillWatch


def test_a_worker_without_a_new_sign_stands_still_once_in_each_limit() -> None:
    watch = StandstillWatch()
    assert not watch.stands_still(7, ("c", 500), 0)
    assert not watch.stands_still(7, ("c", 500), SYNC_STANDSTILL_SECONDS - 1)
    assert watch.stands_still(7, ("c", 500), SYNC_STANDSTILL_SECONDS)
    assert not watch.stands_still(7, ("c", 500), SYNC_STANDSTILL_SECONDS + 1)


def test_any_new_sign_is_progress_and_tables_are_apart() -> None:
    watch = StandstillWatch()
    for second in range(0, int(3 * SYNC_STANDSTILL_SECONDS), 60):
        assert not watch.stands_still(7, ("c", 500, second), second)
    assert not watch.stands_still(8, ("c", 500), 3 * SYNC_STANDSTILL_SECONDS)
