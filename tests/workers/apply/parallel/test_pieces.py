"""Pieces of a transaction in progress hold what the transaction holds, whatever is rolled back."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.apply.parallel.pieces import Pieces, may_write
from workers.stream.batch import Received

LEAST, MOST = 10, 20


@dataclass
class Running:
    """A transaction whose records are of one byte: the record's number. It is cut at savepoints."""

    records: list[int] = field(default_factory=list)
    savepoints: list[int] = field(default_factory=list)
    numbers: int = 0
    cut: int | None = None

    def grow(self, count: int) -> None:
        self.records += range(self.numbers, self.numbers + count)
        self.numbers += count

    def roll_back(self) -> None:
        if self.savepoints:
            at = self.savepoints.pop()
            if at < len(self.records):
                del self.records[at:]
                self.cut = at if self.cut is None else min(at, self.cut)

    def look(self) -> Received:
        size, cut, self.cut = len(self.records), self.cut, None
        calm = self.savepoints[-1] if self.savepoints else size
        return Received(1, 700, size, min(calm, size), cut)


STEPS = st.lists(
    st.one_of(
        st.integers(1, 30).map(lambda count: ("grow", count)),
        st.sampled_from([("savepoint", 0), ("roll back", 0), ("look", 0), ("written", 0)]),
    ),
    max_size=60,
)


@given(STEPS)
def test_a_piece_holds_the_records_of_its_place(steps: list[tuple[str, int]]) -> None:
    running, pieces = Running(), Pieces[list[int]](LEAST, MOST)
    under_way: list[int] = []
    given_back: list[list[int]] = []
    begun: list[list[int]] = []
    for step, count in [*steps, ("look", 0), ("written", 0), ("look", 0)]:
        if step == "grow":
            running.grow(count)
        elif step == "savepoint":
            running.savepoints.append(len(running.records))
        elif step == "roll back":
            running.roll_back()
        elif step == "written" and pieces.is_under_way:
            undone = pieces.complete(under_way)
            given_back += [] if undone is None else [undone]
        elif step == "look":
            received = running.look()
            if received.cut is not None:
                given_back += pieces.cut(received.cut)
            part = pieces.next_part(received)
            if part is not None:
                start, size = part
                assert start == pieces.end
                assert LEAST <= size <= MOST
                under_way = running.records[start : start + size]
                begun.append(under_way)
                pieces.begin(size)
    ends = [0, *(each.end for each in pieces.pieces)]
    assert [each.start for each in pieces.pieces] == ends[:-1]
    for each in pieces.pieces:
        assert each.made == running.records[each.start : each.end]
    kept = [each.made for each in pieces.pieces]
    in_hand = [under_way] if pieces.is_under_way else []
    assert sorted(kept + given_back + in_hand) == sorted(begun), "a piece is lost or doubled"


@given(st.lists(st.integers(1, 40), min_size=1, max_size=200))
def test_what_is_dropped_is_bounded(sizes: list[int]) -> None:
    """Somebody rolls back again and again behind what was just written."""
    pieces = Pieces[int](LEAST, MOST)
    written = size = 0
    for grown in sizes:
        size += grown
        part = pieces.next_part(Received(1, 700, size, size))
        if part is None:
            continue
        pieces.begin(part[1])
        pieces.complete(0)
        written += part[1]
        size = pieces.end - 1
        pieces.cut(size)
    assert written <= 3 * MOST
    if written > MOST:
        assert pieces.has_given_up
        assert pieces.next_part(Received(1, 700, size + 1000, size + 1000)) is None


def test_a_piece_ends_where_the_last_subtransaction_begins() -> None:
    pieces = Pieces[str](LEAST, MOST)
    assert pieces.next_part(Received(1, 700, 19, 12)) == (0, 12)
    assert pieces.next_part(Received(1, 700, 19, 9)) is None, "the subtransaction is small"
    assert pieces.next_part(Received(1, 700, 20, 9)) == (0, 20), "the subtransaction is large"
    pieces.begin(12)
    assert pieces.next_part(Received(1, 700, 60, 60)) is None, "one piece at a time"
    assert pieces.complete("a") is None
    assert pieces.next_part(Received(1, 700, 21, 21)) is None
    assert pieces.next_part(Received(1, 700, 22, 22)) == (12, 10)


def test_a_cut_inside_of_a_piece_that_is_being_written_undoes_the_piece() -> None:
    pieces = Pieces[str](LEAST, MOST)
    pieces.begin(15)
    assert pieces.cut(15) == []
    assert pieces.complete("kept") is None
    pieces.begin(15)
    assert pieces.cut(29) == []
    assert pieces.complete("undone") == "undone"
    assert [each.made for each in pieces.pieces] == ["kept"]
    assert pieces.cut(14) == ["kept"]
    assert pieces.end == 0


def test_nothing_follows_what_was_given_up() -> None:
    pieces = Pieces[str](LEAST, MOST)
    pieces.give_up()
    assert pieces.next_part(Received(1, 700, 500, 500)) is None


@pytest.mark.parametrize(
    ("waits_since", "last_batch", "now", "expected"),
    [
        (10.0, float("-inf"), 10.0, True),  # no batch ever
        (10.0, 9.9, 10.5, False),  # the batches behind the burst come first
        (10.0, 10.9, 11.0, True),  # beside batches the piece has waited long enough
        (10.0, 8.0, 10.0, True),  # nobody waits
        (10.0, 8.1, 10.0, False),
    ],
)
def test_a_piece_comes_behind_the_batches_of_a_burst(
    waits_since: float, last_batch: float, now: float, expected: bool
) -> None:
    assert may_write(waits_since, last_batch, now) is expected
