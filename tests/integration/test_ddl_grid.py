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
from tests.integration.ddl_situations import SITUATIONS

VERSIONS = (14, 16, 18)
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
    name, version, captured = request.param
    situation = SITUATIONS[name]
    server: EmbeddedPublisher = request.getfixturevalue("server_of")(version)
    capture: dict[str, Any] = {"ddl_capture": "on"} if captured else {}
    with ExitStack() as stack:
        stack.enter_context(pgsub.settings(**SETTINGS, **capture))
        grid = Grid(pgsub, server, name, captured=captured)
        stack.callback(grid.close)
        grid.make(**situation.options)
        if situation.small_memory:
            grid.pub.run(f"ALTER DATABASE {grid.name} SET logical_decoding_work_mem = '64kB'")
        with ExitStack() as readers:
            if not situation.first_copies:
                grid.enable()
                pgsub.wait(grid.name)
                readers.enter_context(grid.watched())
            situation.play(grid)
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
    name, _, captured = request.node.callspec.params["grid"]
    situation = SITUATIONS[name]
    said = grid.copied()
    unsaid = {each for each in grid.kinds if grid.is_copied(each) and not said[each]}
    needless = {each: said[each] for each in said if said[each] and grid.is_copied(each) is False}
    if situation.first_copies:
        unsaid.clear()
    if situation.one_transaction or (name != "idle" and not captured):
        needless.clear()
    assert (unsaid, needless, grid.copied_early) == (set(), {}, {})


def test_no_transaction_failed(grid: Grid) -> None:
    stats = grid.pgsub.status("pg_stat_subscription_stats")
    (row,) = [row for row in stats if row["subname"] == grid.name]
    assert row["apply_error_count"] == 0, grid.log()
