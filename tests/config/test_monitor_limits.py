"""The limits of logs and metrics; ``test_limits`` has the rules of both modules."""

from __future__ import annotations

from config import limits, monitor_limits


def test_no_limit_stands_in_both_modules() -> None:
    names = {name for name in vars(monitor_limits) if name.isupper() and name[0] != "_"}
    assert names
    assert not names & set(vars(limits))


def test_a_scrape_ends_before_a_monitor_gives_up() -> None:
    assert monitor_limits.SLOT_WAIT_SECONDS + monitor_limits.HEALTH_ANSWER_SECONDS < 10
