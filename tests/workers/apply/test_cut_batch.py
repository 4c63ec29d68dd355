"""The parts of a batch have every transaction once, in order."""

from __future__ import annotations

import pytest

from tests.workers.transactions import batch, relation, row
from workers.apply.cut_batch import around, before_and_from, halves
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
