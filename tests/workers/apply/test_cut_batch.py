"""The parts of a batch have every transaction once, in order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.workers.transactions import batch, relation, row
from workers.apply.cut_batch import around, before_and_from, cuts_for_columns, halves
from workers.changes.by_table import Run
from workers.proto.messages import Insert, Message
from workers.stream.batch import Batch

A = relation(1, "a", "id")


def whole(count: int) -> Batch:
    transactions: list[list[Message]] = [[A, Insert(1, row(str(n)))] for n in range(count)]
    return batch(*transactions)


def ends(parts: list[Batch]) -> list[list[int]]:
    return [[int(end) // 100 for end in part.end_lsn] for part in parts]


@pytest.mark.parametrize(
    ("txn", "expected"),
    [(0, [[1], [2, 3]]), (1, [[1], [2], [3]]), (2, [[1, 2], [3]])],
)
def test_around_a_transaction(txn: int, expected: list[list[int]]) -> None:
    assert ends(around(whole(3), txn)) == expected


def test_in_two() -> None:
    assert ends(halves(whole(5))) == [[1, 2], [3, 4, 5]]
    assert ends(before_and_from(whole(3), 1)) == [[1], [2, 3]]


V, X = relation(1, "a", "id", "v"), relation(1, "a", "id", "v", "x")


def run(txn: int, columns: Any) -> Run:
    changes: Any = SimpleNamespace(txn=[txn])
    return Run(columns, changes)


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([run(0, V), run(1, V)], []),
        ([run(0, X), run(1, X)], []),
        ([run(0, V), run(1, X), run(1, X), run(2, V)], [1, 2]),
        ([run(0, V), run(0, X), run(2, V), run(2, V), run(3, X)], [1, 2, 3]),
        ([Run(None, None, truncate=True), run(0, X)], []),
        ([Run(None, None, truncate=True), run(2, X)], [2]),
    ],
    ids=[
        "none",
        "the first",
        "to and fro",
        "behind a row of the first",
        "truncated",
        "truncated 2",
    ],
)
def test_cuts_where_a_table_gets_other_columns(runs: list[Run], expected: list[int]) -> None:
    """v is remembered; behind x the columns of before are others again."""
    assert cuts_for_columns(runs, 4, lambda each: each.relation != V) == expected


def test_the_only_transaction_is_not_cut() -> None:
    assert cuts_for_columns([run(0, V), run(0, X)], 1, lambda each: each.relation != V) == []
