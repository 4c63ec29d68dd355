"""How long a worker waits after the error of its predecessor."""

from __future__ import annotations

import pytest

from config.limits import REPEATED_ERROR_RETRY_SECONDS
from workers.process.retry import retries_steadily, retry_delay


def test_the_wait_doubles_to_a_limit_of_minutes() -> None:
    assert [retry_delay(5.0, n) for n in range(7)] == [5, 10, 20, 40, 80, 160, 180]
    assert retry_delay(5.0, 10**6) == REPEATED_ERROR_RETRY_SECONDS
    assert retry_delay(600.0, 3) == 600.0, "never shorter than the interval"


def test_an_hour_of_one_error_is_a_bounded_number_of_lives() -> None:
    at, lives = 5.0, 2
    while at < 3600:
        at, lives = at + retry_delay(5.0, lives - 1), lives + 1
    assert lives < 30


@pytest.mark.parametrize(
    ("sqlstate", "steady"),
    [
        ("08006", True),
        ("08001", False),
        ("08P01", False),
        ("57P01", True),
        ("55006", True),
        ("55P03", True),
        ("40001", True),
        ("55000", False),
        ("22003", False),
        ("53100", False),
        ("58030", False),
        ("XX000", False),
    ],
)
def test_a_publisher_that_comes_back_is_followed_at_once(sqlstate: str, steady: bool) -> None:
    assert retries_steadily(sqlstate) is steady
