"""Every kind of DDL: the lake has the publisher's columns, types and rows afterwards.

``ddl_kinds.py`` has the kinds. ``seen`` is without triggers on the publisher, ``told`` with them
(``ddl_capture``). All kinds are played at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.harness import Pgsub
from tests.integration.ddl_grid import Grid, play

VERSIONS = (14, 16, 18)
SETTINGS: dict[str, Any] = {"max_sync_workers_per_subscription": 6}


def _every() -> list[Any]:
    return [
        pytest.param(
            (version, captured),
            id=f"pg{version}-{'told' if captured else 'seen'}",
            marks=[pytest.mark.long, pytest.mark.timeout(1500)],
        )
        for version in VERSIONS
        for captured in (False, True)
    ]


@pytest.fixture(scope="module", params=_every())
def grid(request: pytest.FixtureRequest, pgsub: Pgsub) -> Iterator[Grid]:
    version, captured = request.param
    server: EmbeddedPublisher = request.getfixturevalue("server_of")(version)
    capture: dict[str, Any] = {"ddl_capture": "on"} if captured else {}
    with ExitStack() as stack:
        stack.enter_context(pgsub.settings(**SETTINGS, **capture))
        grid = Grid(pgsub, server, captured=captured)
        stack.callback(grid.close)
        grid.make()
        pgsub.command("enable", grid.name)
        pgsub.wait(grid.name)
        with grid.watched():
            play(grid)
        yield grid


def test_the_lake_has_the_publisher_s_columns_types_and_rows(grid: Grid) -> None:
    assert grid.left == {}


def test_readers_see_no_gap(grid: Grid) -> None:
    assert grid.gaps == []


def test_what_is_copied_again_is_said_and_nothing_else_is(grid: Grid) -> None:
    said = grid.copied()
    unsaid = {name for name in grid.kinds if grid.is_copied(name) and not said[name]}
    needless = {name: said[name] for name in said if said[name] and grid.is_copied(name) is False}
    assert (unsaid, needless) == (set(), {})


def test_no_transaction_failed(grid: Grid) -> None:
    stats = grid.pgsub.status("pg_stat_subscription_stats")
    (row,) = [row for row in stats if row["subname"] == grid.name]
    assert row["apply_error_count"] == 0, grid.log()
