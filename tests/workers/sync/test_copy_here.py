"""A copy through the sync worker's connection: counted, in time, and nothing staged is left."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from catalog.errcodes import ConnectionFailure, ReplicationError
from catalog.pg_subscription import TableOptions
from tests.workers.copying import START, Copying, PublisherTwin, copying
from workers.publisher.interfaces import Row

PATIENCE = 30


@dataclass(slots=True)
class Heard(PublisherTwin):
    """Tells when all rows have been taken, and when the copy is given up."""

    taken: threading.Event = field(default_factory=threading.Event)
    given_up: threading.Event = field(default_factory=threading.Event)

    def copy_out(self, sql: str) -> Iterator[bytes]:
        yield from super(Heard, self).copy_out(sql)
        self.taken.set()

    def give_up(self) -> None:
        self.given_up.set()


@dataclass(slots=True)
class Busy(PublisherTwin):
    """Refuses every statement during the COPY, which lasts until the copy's branch is made."""

    is_begun: bool = False
    is_busy: bool = False
    may_end: threading.Event = field(default_factory=threading.Event)

    def copy_out(self, sql: str) -> Iterator[bytes]:
        self.is_begun = self.is_busy = True
        yield from super(Busy, self).copy_out(sql)
        assert self.may_end.wait(PATIENCE)
        self.is_busy = False

    def command(self, sql: str) -> None:
        assert not self.is_busy
        super(Busy, self).command(sql)

    def exec(self, sql: str) -> list[Row]:
        assert not self.is_busy
        return super(Busy, self).exec(sql)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Copying]:
    yield from copying(tmp_path)


def test_a_small_table_comes_through_our_own_connection_and_is_counted(world: Copying) -> None:
    data = [b"1\n", b"2\n", b"30\n"]
    rel, keys = world.copy(PublisherTwin(data))
    assert (keys, rel.copied, rel.floor) == ([1, 2, 30], True, START)
    first, *_, last = world.link.progress
    assert first == {
        "bytes_processed": 0,
        "bytes_total": 0,
        "tuples_processed": 0,
        "done": 0,
        "ranges": 1,
    }
    size = 19 + 3 * (2 + 4 + 4) + 2  # of a binary COPY: its head, three rows, its end
    assert last == first | {"bytes_processed": size, "tuples_processed": 3, "done": 1}
    assert world.dest.staged == 0


def test_a_copy_that_fails_leaves_nothing_staged(world: Copying) -> None:
    def fail(operation: str) -> None:
        if operation == "write_branch":
            raise ReplicationError("no space left", sqlstate="53100")

    world.dest.failpoint = fail
    with pytest.raises(ReplicationError, match="no space left"):
        world.copy(PublisherTwin([b"1\n"]))
    assert world.dest.staged == 0


@pytest.mark.parametrize(
    ("options", "waits"),
    [
        (TableOptions(), True),
        (TableOptions(writer="spark"), False),
        (TableOptions(generated=(("g", "id + 1"),)), False),
        (TableOptions(keys=(("id",),)), False),
    ],
    ids=["files", "spark", "computed", "keys"],
)
def test_rows_that_this_process_does_not_write_are_committed_before_the_worker_asks_for_c(
    world: Copying, options: TableOptions, waits: bool
) -> None:
    """From c on the apply worker stands still."""
    world.sub = replace(world.sub, tables={"public.a": options})
    assert world.copy(PublisherTwin([b"1\n", b"2\n"]))[1] == [1, 2]
    assert world.waited is waits


def test_a_copy_whose_end_fails_on_the_publisher_leaves_nothing_staged(world: Copying) -> None:
    class Lost(PublisherTwin):
        def command(self, sql: str) -> None:
            if sql == "COMMIT":
                assert world.dest.staged == 1
                raise ConnectionFailure("lost the connection to the publisher")
            super().command(sql)

    with pytest.raises(ConnectionFailure):
        world.copy(Lost([b"1\n"]))
    assert world.dest.staged == 0


def test_rows_arrive_while_the_lake_table_is_made(world: Copying) -> None:
    publisher = Heard([b"1\n", b"2\n"])

    def make(operation: str) -> None:
        if operation == "create_table":
            assert publisher.taken.wait(PATIENCE)

    world.dest.failpoint = make
    assert world.copy(publisher)[1] == [1, 2]


def test_a_lake_table_that_cannot_be_made_ends_the_reading(world: Copying) -> None:
    class Silent(Heard):
        def copy_out(self, sql: str) -> Iterator[bytes]:
            assert self.given_up.wait(PATIENCE)
            yield from super().copy_out(sql)

    def refuse(operation: str) -> None:
        if operation == "create_table":
            raise ReplicationError("no space left", sqlstate="53100")

    world.dest.failpoint = refuse
    publisher = Silent([b"1\n"])
    with pytest.raises(ReplicationError, match="no space left"):
        world.copy(publisher)
    assert publisher.given_up.is_set()
    assert "COMMIT" not in publisher.commands


@pytest.mark.parametrize("shared", [False, True])
def test_the_connection_has_no_other_statement_until_the_rows_are_read(
    world: Copying, shared: bool
) -> None:
    """And the rows of a shared table wait until the lake table is there."""
    if shared:
        world.sub = replace(world.sub, tables={"public.a": TableOptions(shared=True)})
    publisher = Busy([b"1\n"])
    begun: list[bool] = []

    def enter(operation: str) -> None:
        begun.append(publisher.is_begun)
        if operation == "create_branch":
            publisher.may_end.set()

    world.dest.failpoint = enter
    assert world.copy(publisher)[1] == [1]
    assert publisher.commands[-1] == "COMMIT"
    assert not (shared and begun[0])
