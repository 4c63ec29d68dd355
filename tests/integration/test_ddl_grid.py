"""Every kind of DDL: the lake has the publisher's columns, types and rows afterwards.

``ddl_kinds.py`` has the kinds, ``ddl_situations.py`` what else goes on at the time. ``seen`` is
without triggers on the publisher, ``told`` with them (``ddl_capture``). All kinds are played at
once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.harness import Pgsub
from tests.integration.ddl_grid import Grid
from tests.integration.ddl_situations import (
    FIRST_COPIES,
    ONE_TRANSACTION,
    OPTIONS,
    SITUATIONS,
    SMALL_MEMORY,
)

VERSIONS = (14, 16, 18)
MET_AT_LEAST = 10
"""So many tables have to be in the state that a situation is about."""
SETTINGS: dict[str, Any] = {"max_sync_workers_per_subscription": 6}


def _every() -> list[Any]:
    return [
        pytest.param(
            (situation, version, captured),
            id=f"{situation}-pg{version}-{'told' if captured else 'seen'}",
            marks=[pytest.mark.long, pytest.mark.timeout(1500)],
        )
        for situation in SITUATIONS
        for version in VERSIONS
        for captured in (False, True)
    ]


@pytest.fixture(scope="module", params=_every())
def grid(request: pytest.FixtureRequest, pgsub: Pgsub) -> Iterator[Grid]:
    situation, version, captured = request.param
    server: EmbeddedPublisher = request.getfixturevalue("server_of")(version)
    capture: dict[str, Any] = {"ddl_capture": "on"} if captured else {}
    with ExitStack() as stack:
        stack.enter_context(pgsub.settings(**SETTINGS, **capture))
        grid = Grid(pgsub, server, situation, captured=captured)
        stack.callback(grid.close)
        grid.make(**OPTIONS.get(situation, {}))
        if situation in SMALL_MEMORY:
            grid.pub.run(f"ALTER DATABASE {grid.name} SET logical_decoding_work_mem = '64kB'")
        with ExitStack() as readers:
            if situation not in FIRST_COPIES:
                grid.enable()
                pgsub.wait(grid.name)
                readers.enter_context(grid.watched())
            SITUATIONS[situation](grid)
            grid.end()
        yield grid


def test_the_lake_has_the_publisher_s_columns_types_and_rows(grid: Grid) -> None:
    assert grid.left == {}


def test_readers_see_no_gap(grid: Grid) -> None:
    assert grid.gaps == []


def test_what_is_copied_again_is_said_and_nothing_else_is(
    grid: Grid, request: pytest.FixtureRequest
) -> None:
    """A first copy may have the DDL. Without triggers, more that waits makes a change ambiguous."""
    situation, _, captured = request.node.callspec.params["grid"]
    said = grid.copied()
    unsaid = {name for name in grid.kinds if grid.is_copied(name) and not said[name]}
    needless = {name: said[name] for name in said if said[name] and grid.is_copied(name) is False}
    if situation in FIRST_COPIES:
        unsaid.clear()
    if situation in ONE_TRANSACTION or (situation != "idle" and not captured):
        needless.clear()
    assert (unsaid, needless, grid.copied_early) == (set(), {}, {})


def test_the_ddl_met_what_the_situation_is_about(
    grid: Grid, request: pytest.FixtureRequest
) -> None:
    situation, _, _ = request.node.callspec.params["grid"]
    if situation in FIRST_COPIES:
        assert grid.met[FIRST_COPIES[situation]] >= MET_AT_LEAST, grid.met


def test_no_transaction_failed(grid: Grid) -> None:
    stats = grid.pgsub.status("pg_stat_subscription_stats")
    (row,) = [row for row in stats if row["subname"] == grid.name]
    assert row["apply_error_count"] == 0, grid.log()
