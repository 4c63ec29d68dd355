"""The situations in which the grid's DDL happens: what else goes on at the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from psycopg.errors import DeadlockDetected

from catalog.pg_subscription_rel import SubRelState
from tests.integration.ddl_grid import Grid
from tests.waiting import wait_until

STREAMED_ROWS: Final = 1500
"""Rows of a transaction that a publisher with ``logical_decoding_work_mem = 64kB`` streams."""
STATES_PAUSE: Final = 0.05
MET_AT_LEAST: Final = 10
"""So many tables have to be in the state that a situation is about."""

_STREAMED: Final = """
SELECT coalesce(sum(stream_txns), 0)
  FROM pg_stat_replication_slots JOIN pg_replication_slots USING (slot_name)
 WHERE database = current_database()
"""


def idle(grid: Grid) -> None:
    """The DDL of all kinds, when everything is applied; rows come when all of it is done."""
    for name in grid.kinds:
        grid.pub.run(*grid.ddl(name))
    for name in grid.kinds:
        grid.pub.run(*grid.changes(name, 2000))


def queued(grid: Grid) -> None:
    """The worker is away: rows, DDL and rows wait, and the catalog is ahead of all of them."""
    grid.pgsub.command("disable", grid.name)
    for name in grid.kinds:
        grid.pub.run(grid.insert(name, 1000, 10, then=False))
    for name in grid.kinds:
        grid.pub.run(*grid.ddl(name), *grid.changes(name, 2000))
    grid.pgsub.command("enable", grid.name)


def two(grid: Grid) -> None:
    """Two DDLs and rows in front, between and behind, all in one transaction."""
    for name in grid.kinds:
        _transaction(grid, name, 10)


def rolled_back(grid: Grid) -> None:
    """The DDL and its rows are rolled back, and rows come: the lake has nothing of the DDL.

    ``copied_early`` are the tables that were copied again nevertheless. The DDL comes once more.
    """
    for name in grid.kinds:
        with grid.pub.connect() as connection:
            connection.execute("BEGIN")
            rows = [] if grid.kinds[name].apart else grid.changes(name, 2000)
            for each in (*grid.ddl(name), *rows):
                connection.execute(each.encode())
            connection.execute("ROLLBACK")
            connection.execute(grid.insert(name, 1000, 10, then=False).encode())
    grid.is_done = False
    grid.settle()
    grid.copied_early = {name: said for name, said in grid.copied().items() if said}
    grid.is_done = True
    idle(grid)


def copying(grid: Grid) -> None:
    """Each table's DDL comes as soon as the first copy of the table begins."""
    met = _as_states_come(grid, {SubRelState.INIT})
    assert met[SubRelState.DATASYNC] >= MET_AT_LEAST, met


def catching_up(grid: Grid) -> None:
    """Each table's DDL comes when the first copy is made, and rows wait in the table's slot."""
    met = _as_states_come(grid, {SubRelState.INIT, SubRelState.DATASYNC})
    assert met[SubRelState.FINISHEDCOPY] >= MET_AT_LEAST, met


def streamed(grid: Grid) -> None:
    """Two DDLs in a transaction that is sent while it runs; with triggers, at its commit."""
    for name in grid.kinds:
        _transaction(grid, name, STREAMED_ROWS)
    if not grid.captured:
        wait_until(lambda: grid.pub.value(_STREAMED) >= MET_AT_LEAST, 60)


@dataclass(frozen=True, slots=True)
class Situation:
    """What a situation plays, and what differs in it."""

    play: Callable[[Grid], None]
    options: Mapping[str, Any] = field(default_factory=dict)
    """The subscription's."""
    small_memory: bool = False
    """The publisher has little memory to hold a transaction back."""
    first_copies: bool = False
    """The first copies are made meanwhile. One may have the DDL: no second copy is due then."""
    one_transaction: bool = False
    """Rows are in front of, between and behind changes of columns in one transaction, and a table
    may be copied again for that."""


SITUATIONS: Final[Mapping[str, Situation]] = {
    "idle": Situation(idle),
    "queued": Situation(queued),
    "two": Situation(two, one_transaction=True),
    "rolled": Situation(rolled_back),
    "copying": Situation(copying, first_copies=True),
    "catching": Situation(catching_up, {"sync_slot": "permanent"}, first_copies=True),
    "streamed": Situation(
        streamed, {"streaming": "parallel"}, small_memory=True, one_transaction=True
    ),
}


def _transaction(grid: Grid, name: str, rows: int) -> None:
    """Rows, DDL, rows, a column, and rows."""
    kind = grid.kinds[name]
    inside = [grid.insert(name, 10000, rows, then=False), *grid.ddl(name)]
    if kind.apart:
        grid.pub.run(*grid.ddl(name))
        inside = inside[:1]
    inside += grid.changes(name, 2000)
    if not kind.leaves:
        inside.append(f"ALTER TABLE {grid.text(name, kind.now)} ADD COLUMN other int")
        inside.append(grid.insert(name, 4000, 10, then=True))
    with grid.pub.connect() as connection:
        for each in ("BEGIN", *inside, "COMMIT"):
            connection.execute(each.encode())


def _as_states_come(grid: Grid, before: set[SubRelState]) -> Counter[SubRelState]:
    """Play a table's DDL and rows once its state is none of ``before``; the states it met."""
    met: Counter[SubRelState] = Counter()
    waiting = set(grid.kinds)
    grid.enable()

    def play() -> bool:
        states = grid.states()
        for name in sorted(waiting):
            state = states.get(grid.table(name), SubRelState.INIT)
            if state not in before:
                waiting.remove(name)
                met[state] += 1
                for each in (*grid.ddl(name), *grid.changes(name, 2000)):
                    wait_until(partial(_run, grid, each), 60, each, pause=STATES_PAUSE)
        return not waiting

    wait_until(play, 400, pause=STATES_PAUSE)
    return met


def _run(grid: Grid, statement: str) -> bool:
    """Run it; False if a copy had locked partitions in another order, and the server chose."""
    try:
        grid.pub.run(statement)
    except DeadlockDetected:
        return False
    return True
