"""The verbs that show, wait, query and check."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from catalog.pg_subscription import Subscription
from tests.shell import Shell


def test_status_without_a_launcher(pgsub: Shell, stored: Subscription) -> None:
    rows = json.loads(pgsub("status", "pg_stat_subscription", "--format", "json").out)
    assert [(row["subname"], row["pid"]) for row in rows] == [("mysub", None)]
    assert pgsub("status", "pg_replication_origin", "--format", "csv").out == "roident,roname\n"
    assert "mysub" in pgsub("status").out
    ran = pgsub("status", "pg_nothing")
    assert (ran.status, ran.out) == (1, "")
    assert "42P01" in ran.err


@pytest.mark.parametrize("words", [[], ["mysub"]])
def test_reset_stats(pgsub: Shell, stored: Subscription, words: list[str]) -> None:
    assert pgsub("reset-stats", *words).out == "RESET STATS\n"
    shown = pgsub("status", "pg_stat_subscription_stats", "--format", "json").out
    assert json.loads(shown)[0]["stats_reset"]


def test_publisher_unreachable(pgsub: Shell, tmp_path: Path) -> None:
    file = tmp_path / "sub.yaml"
    file.write_text(
        "subscriptions: {s: {connection: host=127.0.0.1 port=1 password=hidden, publication: p}}"
    )
    for verb in ("create", "check", "up"):
        ran = pgsub(verb, str(file))
        assert ran.status == 1
        assert "08006" in ran.err
        assert "hidden" not in ran.err
        assert "Traceback" not in ran.err
    assert json.loads(pgsub("status", "pg_subscription", "--format", "json").out) == []
    assert not list(pgsub.data_dir.rglob("passfile/*"))


@pytest.mark.parametrize("words", [[], ["--live"]])
def test_health_without_a_launcher_is_a_failure(
    pgsub: Shell, stored: Subscription, words: list[str]
) -> None:
    ran = pgsub("health", *words)
    assert ran.status == 1
    assert ran.out.startswith("[-]launcher is not running on this data directory\n")
    assert ran.err == ""
