from __future__ import annotations

from typing import Any, cast

import psycopg
import pytest

from catalog.pg_lsn import LSN
from tests.bench.load import Everywhere, SmallChanges, rate_of
from tests.bench.test_figures import later


class Table:
    """Stands in for a connection: the ids that are there, and how often each verb came."""

    def __init__(self, rows: int) -> None:
        self.ids = set(range(1, rows + 1))
        self.verbs = {"INSERT": 0, "UPDATE": 0, "DELETE": 0}

    def execute(self, statement: bytes, args: tuple[int, ...]) -> None:
        verb = statement.decode().split()[0]
        self.verbs[verb] += 1
        assert (args[0] in self.ids) == (verb != "INSERT")
        if verb == "INSERT":
            assert args[0] == args[1]
            self.ids.add(args[0])
        if verb == "DELETE":
            self.ids.remove(args[0])


def play(change: SmallChanges, table: Table, times: int) -> None:
    for _ in range(times):
        change(cast("psycopg.Connection[Any]", table))


def test_mixed_changes_meet_rows_that_are_there() -> None:
    table = Table(rows=500)
    play(SmallChanges("t", rows=500), table, 4000)
    shares = {verb: count / 4000 for verb, count in table.verbs.items()}
    assert shares == pytest.approx({"INSERT": 0.5, "UPDATE": 0.35, "DELETE": 0.15}, abs=0.03)


def test_an_empty_table_is_filled_first() -> None:
    table = Table(rows=0)
    play(SmallChanges("t"), table, 101)
    assert table.verbs == {"INSERT": 101, "UPDATE": 0, "DELETE": 0}


def test_inserts_only() -> None:
    table = Table(rows=0)
    play(SmallChanges("t", inserts=1.0), table, 1000)
    assert table.verbs["INSERT"] == 1000


def test_every_table_is_touched_by_the_same_row() -> None:
    inserts = Everywhere(["a", "b"], rows=10, updates=False)
    assert inserts.statements() == [
        "INSERT INTO a SELECT * FROM made(11, 11)",
        "INSERT INTO b SELECT * FROM made(11, 11)",
    ]
    assert inserts.statements()[0].endswith("made(12, 12)")
    updates = Everywhere(["a", "b"], rows=1, updates=True)
    assert updates.statements() == [
        "UPDATE a SET amount = amount + 1 WHERE id = 1",
        "UPDATE b SET amount = amount + 1 WHERE id = 1",
    ]


def test_the_rate_is_that_of_the_commits() -> None:
    written = [(LSN(n), later(n / 20)) for n in range(61)]
    assert rate_of(written) == 20.0
