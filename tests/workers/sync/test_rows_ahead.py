"""Rows of a COPY that arrive before anybody asks: all, in order, each once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import cast

import pytest

from catalog.errcodes import AdminShutdown, ConnectionFailure, TableRewritten
from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.fix_publisher import Database
from tests.waiting import wait_until
from workers.publisher.connect import connect
from workers.publisher.connection import WalReceiverConn, terminated_by_command
from workers.sync import rows_ahead
from workers.sync.rows_ahead import RowsAhead, reading_ahead

PATIENCE = 30


class Sender:
    """A connection whose COPY sends ``pieces`` in one buffer, as libpq's rows come.

    After ``silent`` pieces the publisher says nothing until ``go_on`` is set. ``error`` comes at
    the end. ``readers`` are the threads that took a piece.
    """

    def __init__(
        self, *pieces: bytes, silent: int | None = None, error: BaseException | None = None
    ) -> None:
        self._pieces = pieces
        self._silent = silent
        self._error = error
        self.statements: list[str] = []
        self.readers: list[threading.Thread] = []
        self.go_on, self.is_silent, self.ended = (threading.Event() for _ in range(3))
        self.is_given_up = False

    def copy_out(self, sql: str) -> Iterator[memoryview]:
        self.statements.append(sql)
        room = bytearray(max(map(len, self._pieces), default=0))
        try:
            for number, piece in enumerate(self._pieces):
                if number == self._silent:
                    self.is_silent.set()
                    assert self.go_on.wait(PATIENCE)
                if self.is_given_up:
                    raise terminated_by_command()
                self.readers.append(threading.current_thread())
                room[: len(piece)] = piece
                yield memoryview(room)[: len(piece)]
            if self._error is not None:
                raise self._error
        finally:
            self.ended.set()

    def give_up(self) -> None:
        self.is_given_up = True
        self.go_on.set()

    @property
    def conn(self) -> WalReceiverConn:
        return cast("WalReceiverConn", self)


def reading_threads() -> int:
    return sum(each.name.startswith("rows ahead") for each in threading.enumerate())


def read(ahead: RowsAhead) -> list[bytes]:
    return [bytes(piece) for piece in ahead.pieces()]


def test_rows_come_before_they_are_asked_for() -> None:
    sender = Sender(b"one", b"two", b"three")
    with closing(RowsAhead(sender.conn, "COPY a TO STDOUT")) as ahead:
        assert sender.ended.wait(PATIENCE)
        assert read(ahead) == [b"one", b"two", b"three"]
    assert sender.statements == ["COPY a TO STDOUT"]
    assert not sender.is_given_up
    assert threading.current_thread() not in sender.readers


def test_the_caller_goes_on_behind_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_ahead, "COPY_AHEAD_BYTES", 5)
    sender = Sender(b"one", b"two", b"three", b"four")
    with closing(RowsAhead(sender.conn, "COPY")) as ahead:
        wait_until(lambda: reading_threads() == 0, PATIENCE, "the thread ends")
        assert len(sender.readers) == 2
        assert read(ahead) == [b"one", b"two", b"three", b"four"]
    assert sender.readers[2:] == [threading.current_thread()] * 2


def test_a_caller_in_time_waits_for_the_piece_that_is_arriving() -> None:
    sender = Sender(b"one", b"two", silent=1)
    with closing(RowsAhead(sender.conn, "COPY")) as ahead:
        assert sender.is_silent.wait(PATIENCE)
        with ThreadPoolExecutor(1) as other:
            taken = other.submit(read, ahead)
            sender.go_on.set()
            assert taken.result(PATIENCE) == [b"one", b"two"]


@pytest.mark.parametrize("pieces", [[], [b"one"]])
@pytest.mark.parametrize(
    "error", [ConnectionFailure("lost the connection to the publisher"), SystemExit(1)]
)
def test_an_error_that_the_thread_met_is_raised_before_the_rows(
    pieces: list[bytes], error: BaseException
) -> None:
    sender = Sender(*pieces, error=error)
    with closing(RowsAhead(sender.conn, "COPY")) as ahead:
        assert sender.ended.wait(PATIENCE)
        with pytest.raises(type(error)):
            next(ahead.pieces())


def test_rows_may_wait_until_they_are_asked_for() -> None:
    sender = Sender(b"one", b"two")
    with reading_ahead(sender.conn, ["COPY"], at_once=False) as ahead:
        assert ahead is not None
        assert read(ahead) == [b"one", b"two"]
    assert {*sender.readers} == {threading.current_thread()}
    assert not sender.is_given_up


def test_a_copy_that_is_not_wanted_ends_though_the_publisher_is_silent() -> None:
    """The lake table could not be made: the error is told at once."""
    sender = Sender(b"one", b"two", silent=1)

    def fail() -> None:
        with reading_ahead(sender.conn, ["COPY"]):
            assert sender.is_silent.wait(PATIENCE)
            raise TableRewritten("no")

    with pytest.raises(TableRewritten):
        fail()
    assert sender.is_given_up
    assert sender.ended.is_set()
    assert len(sender.readers) == 1


def test_several_statements_are_not_begun() -> None:
    sender = Sender(b"one")
    with reading_ahead(sender.conn, ["COPY 1", "COPY 2"]) as ahead:
        assert ahead is None
    assert sender.statements == []


@pytest.mark.postgres
def test_a_wait_for_a_real_publisher_ends_when_the_copy_is_given_up(
    make_database: Callable[..., Database], publisher: EmbeddedPublisher
) -> None:
    conn = connect(make_database(publisher, "rows_ahead").dsn, "rows_ahead")
    with closing(conn):
        ahead = RowsAhead(conn, "COPY (SELECT pg_sleep(600)) TO STDOUT")
        ahead.close()
        with pytest.raises(AdminShutdown):
            read(ahead)
