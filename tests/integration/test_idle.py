"""What an installation costs that has nothing to do: processor time and memory of all processes.

``pytest -m long -s tests/integration/test_idle.py`` prints the table of docs/monitoring.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Final
from urllib.request import urlopen

import psutil
import pytest

from tests.bench.meters import cpu_seconds, proportional_mb, tree
from tests.fix_publisher import Database
from tests.harness import SETTINGS, Pgsub
from tests.ports import free_port
from tests.waiting import wait_until

MOST_CPU: Final = 1.5
"""Percent of a core, of all processes together."""
MOST_MB: Final = 900
"""Of all processes together; a page that processes share counts once."""
MOST_LAUNCHER_MB: Final = 70
MOST_MB_OF_METRICS: Final = 30
"""What metrics may add, of all processes together."""
SETTLE, IDLE, SCRAPE = 120.0, 300.0, 15.0
"""Seconds: until the lake server has given back what the work left, measured, between scrapes."""


pytestmark = [pytest.mark.long, pytest.mark.postgres, pytest.mark.spark]


@pytest.mark.timeout(900)
def test_an_idle_installation_is_small_and_quiet(own_pgsub: Pgsub, database: Database) -> None:
    port = free_port()
    _publish(database)
    _work(own_pgsub, database, metrics_listen=port)
    _rest(SETTLE, port)
    before = {each.pid: cpu_seconds([each]) for each in tree(own_pgsub.launcher.pid)}
    began = time.monotonic()
    _rest(IDLE, port)
    elapsed = time.monotonic() - began
    share, size = 0.0, 0.0
    for each in tree(own_pgsub.launcher.pid):
        own = (cpu_seconds([each]) - before.get(each.pid, 0.0)) / elapsed * 100
        print(f"{_name(each):20} {own:5.2f} % {proportional_mb(each.pid):6.0f} MB")
        share, size = share + own, size + proportional_mb(each.pid)
    print(f"{'all':20} {share:5.2f} % {size:6.0f} MB")
    assert proportional_mb(own_pgsub.launcher.pid) <= MOST_LAUNCHER_MB
    assert share <= MOST_CPU
    assert size <= MOST_MB


@pytest.mark.timeout(600)
def test_metrics_cost_little_memory(own_pgsub: Pgsub, database: Database) -> None:
    """Of all processes but the lake server, which no listener touches: its heap comes and goes."""
    port, sizes = free_port(), []
    _publish(database)
    for settings in ({}, {"metrics_listen": port, "metrics_per_table": "on"}):
        _work(own_pgsub, database, **settings)
        if settings:
            _rest(5 * SCRAPE, port)
        lake = own_pgsub.lake_server().pid
        own = [each.pid for each in tree(own_pgsub.launcher.pid) if each.pid != lake]
        sizes.append(sum(map(proportional_mb, own)))
        assert own_pgsub.stop() == 0
    without, found = sizes
    print(f"without metrics {without:.0f} MB, with metrics {found:.0f} MB, lake server left out")
    assert without > 1
    assert found - without <= MOST_MB_OF_METRICS


def _publish(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "CREATE PUBLICATION p FOR TABLE t",
        "INSERT INTO t SELECT n, repeat('x', 50) FROM generate_series(1, 1000) n",
    )


def _work(pgsub: Pgsub, database: Database, **settings: object) -> None:
    """Start, copy, and apply a few transactions."""
    entry = {"connection": database.dsn, "publication": ["p"]}
    pgsub.up({"subscriptions": {"idle": entry}, "settings": {**SETTINGS, **settings}})
    pgsub.wait("idle")
    for _ in range(10):
        database.run("UPDATE t SET v = v || 'y' WHERE id % 10 = 0")
        pgsub.wait("idle")


def _rest(seconds: float, port: int) -> None:
    """Do nothing but scrape."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        until = time.monotonic() + min(SCRAPE, left)
        wait_until(partial(_is_past, until), SCRAPE + 5, pause=0.5)
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            assert answer.status == 200


def _is_past(moment: float) -> bool:
    return time.monotonic() >= moment


def _name(process: psutil.Process) -> str:
    return process.name()
