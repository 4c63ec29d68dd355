"""A batch leaves nothing staged, and a line in the log about rows that were not found."""

from __future__ import annotations

import logging

import pytest

from catalog.errcodes import ReplicationError
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, relation, row
from workers.lake.memory.destination import MemoryDestination
from workers.proto.messages import Delete, Insert, Message, Update

A = relation(1, "a", "id", "v")


B = relation(2, "b", "id", "v")


FULL = relation(1, "a", "id", "v", identity="f")


TOO_LARGE = "99999999999"


def missing(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Kind and count of each line about rows that were not found."""
    lines = [record.getMessage() for record in caplog.records]
    found = [line.split() for line in lines if line.startswith("action=conflict")]
    return [
        " ".join(word for word in words if word.startswith(("count=", "conflict=")))
        for words in found
    ]


def in_full(kind: str, old: tuple[str, str], new: tuple[str, str] = ("", "")) -> Message:
    if kind == "U":
        return Update(1, "O", row(*old), row(*new))
    return Delete(1, "O", row(*old))


def test_rows_that_were_not_found_are_counted_in_one_line_a_table(
    world: Subscribed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "workers")
    world.put("a", (1, 1), (2, 2))
    world.worker().apply_batch(
        batch(
            [A, Delete(1, "K", row("1", "")), Update(1, None, None, row("1", "5"))],
            [Delete(1, "K", row("1", "")), Update(1, None, None, row("8", "5"))],
            [Update(1, None, None, row("9", "987654321")), Delete(1, "K", row("7", ""))],
            [B, Insert(2, row("1", "1")), Update(1, None, None, row("2", "3"))],
        )
    )
    assert missing(caplog) == [
        "count=3 conflict=update_missing",
        "count=2 conflict=delete_missing",
    ]
    assert "987654321" not in caplog.text
    assert world.rows("a") == [(2, 3)]


def test_whole_rows_that_were_not_found_are_counted_too(
    world: Subscribed, caplog: pytest.LogCaptureFixture
) -> None:
    """H-32: an old row that does not fit what is here is a miss that is told."""
    caplog.set_level(logging.INFO, "workers")
    world.put("a", (1, 1), (1, 1))
    gone = in_full("D", ("1", "1"))
    moved = in_full("U", ("4", "4"), ("5", "5"))
    world.worker().apply_batch(batch([FULL, gone, gone, gone, moved]))
    assert missing(caplog) == [
        "count=1 conflict=update_missing",
        "count=1 conflict=delete_missing",
    ]
    assert world.rows("a") == []


def test_a_batch_that_found_every_row_says_nothing(
    world: Subscribed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "workers")
    world.worker().apply_batch(
        batch([A, Insert(1, row("1", "1")), Update(1, None, None, row("1", "2"))])
    )
    assert missing(caplog) == []


def test_nothing_stays_staged_after_a_batch(world: Subscribed) -> None:
    world.put("a", (1, 1), (2, 2))
    dest = MemoryDestination(world.lake)
    world.worker(dest).apply_batch(
        batch(
            [FULL, in_full("U", ("1", "1"), ("1", "5")), in_full("D", ("2", "2"))],
            [Insert(1, row("3", "3")), in_full("D", ("9", "9"))],
            [B, Insert(2, row("1", "1")), Update(2, None, None, row("4", "4"))],
        )
    )
    assert (world.rows("a"), world.rows("b")) == ([(1, 5), (3, 3)], [(1, 1)])
    assert dest.staged == 0


@pytest.mark.parametrize("fails", ["write_branch", "count", "create_branch", "publish"])
def test_nothing_stays_staged_when_the_lake_fails(world: Subscribed, fails: str) -> None:
    world.put("a", (1, 1))

    def fail(operation: str) -> None:
        if operation == fails and dest.staged:
            raise ReplicationError("no space left", sqlstate="53100")

    dest = MemoryDestination(world.lake, failpoint=fail)
    with pytest.raises(ReplicationError, match="no space left"):
        world.worker(dest).apply_batch(
            batch(
                [FULL, in_full("U", ("1", "1"), ("1", "5")), Insert(1, row("3", "3"))],
                [B, Insert(2, row("1", "1"))],
            )
        )
    assert dest.staged == 0
    assert (world.rows("a"), world.rows("b")) == ([(1, 1)], [])


def test_nothing_stays_staged_of_a_table_one_of_whose_values_does_not_fit(
    world: Subscribed,
) -> None:
    dest = MemoryDestination(world.lake)
    wider = relation(1, "a", "id", "v", key="v")
    with pytest.raises(ReplicationError, match="cannot hold a value"):
        world.worker(dest).apply_batch(
            batch(
                [
                    A,
                    Insert(1, row("1", "1")),
                    Update(1, None, None, row("7", "1")),
                    wider,
                    Insert(1, row("2", TOO_LARGE)),
                ]
            )
        )
    assert dest.staged == 0
