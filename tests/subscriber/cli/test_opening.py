"""What a verb opens must be there."""

from __future__ import annotations

import pytest

from catalog.pg_subscription import Subscription
from tests.shell import Shell


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["drop", "x"],
        ["enable", "x"],
        ["wait", "x"],
        ["skip", "x", "--lsn", "0/1"],
        ["alter", "x", "ENABLE"],
        [
            "exec",
            "DROP SUBSCRIPTION IF EXISTS x; CREATE SUBSCRIPTION x CONNECTION '' PUBLICATION p",
        ],
    ],
)
def test_no_data_directory(pgsub: Shell, words: list[str]) -> None:
    ran = pgsub(*words)
    assert ran.status == 1
    assert "is not a data directory" in ran.err
    assert not pgsub.data_dir.exists()


@pytest.mark.parametrize("verb", ["drop", "enable", "disable", "reset-stats", "wait"])
def test_unknown_subscription(pgsub: Shell, stored: Subscription, verb: str) -> None:
    ran = pgsub(verb, "nobody")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == 'ERROR:  42704: subscription "nobody" does not exist\n'
