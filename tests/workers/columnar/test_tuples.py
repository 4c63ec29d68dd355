"""Where the values of a row lie, however long ago they were sent, and what was not sent at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.workers.columnar.records import Row, delete, framed, insert, update
from workers.columnar import tuples
from workers.columnar.frame import Frame
from workers.proto.messages import Message

COLUMNS = 3
EVERY = np.ones(COLUMNS, np.bool_)
KEY = np.array([True, False, False])


class Placed:
    """The places of the rows ``refs`` after some changes; the first column is the key."""

    def __init__(
        self,
        found: Frame,
        refs: list[int],
        *,
        prev: list[int] | None = None,
        slot: list[int] | None = None,
        max_bytes: int = 1 << 20,
    ) -> None:
        self.buf = tuples.readonly(found.buf)
        self.loc = np.zeros((COLUMNS, len(refs)), np.int64)
        self.length = np.zeros((COLUMNS, len(refs)), np.int32)
        self.state = np.zeros(3, np.int64)
        self.done = tuples.place_rows(
            self.buf,
            (found.old_kind, found.old_off, found.new_off),
            np.array(prev or [], np.int64),
            np.array(refs, np.int64),
            (np.array(slot or range(COLUMNS), np.int64), EVERY, KEY),
            self.loc,
            self.length,
            max_bytes,
            self.state,
        )

    def row(self, row: int) -> list[Any]:
        return [self._value(int(at), int(n)) for at, n in zip(*self._places(row), strict=True)]

    def _places(self, row: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        return self.loc[:, row], self.length[:, row]

    def _value(self, at: int, length: int) -> Any:
        if length < 0:
            return {tuples.NULL: None, tuples.MISSING: ...}[length]
        return self.buf[at : at + length].tobytes().decode()


def new(change: int) -> int:
    return 2 * change + 1


def old(change: int) -> int:
    return 2 * change


@pytest.mark.parametrize(
    ("message", "ref", "row", "missing"),
    [
        (insert("1", None, "c"), new(0), ["1", None, "c"], 0),
        (update(["1", ..., "c"]), new(0), ["1", ..., "c"], 1),
        (update(["2", ..., "c"], key=["1", None, None]), new(0), ["2", ..., "c"], 1),
        (update(["2", "b", "c"], key=["1", None, None]), old(0), ["1", None, None], 0),
        (update(["1", ..., "c"], old=["1", "b", "x"]), new(0), ["1", "b", "c"], 0),
        (update([..., "b", "c"], key=["1", None, None]), new(0), ["1", "b", "c"], 0),
        (delete(old=["1", "", None]), old(0), ["1", "", None], 0),
    ],
)
def test_a_value_comes_from_the_old_tuple_if_the_new_one_lacks_it(
    message: Message, ref: int, row: Row, missing: int
) -> None:
    placed = Placed(framed(message), [ref])
    assert (placed.done, placed.state.tolist()) == (1, [0, 0, missing])
    assert placed.row(0) == row


def test_a_value_comes_from_the_row_s_previous_changes() -> None:
    found = framed(
        insert("1", "b", "c"),
        update(["1", ..., "d"]),
        insert("9", "x", "y"),
        update(["1", ..., ...]),
    )
    placed = Placed(found, [new(3), new(1)], prev=[-1, 0, -1, 1])
    assert [placed.row(0), placed.row(1)] == [["1", "b", "d"], ["1", "b", "d"]]
    assert placed.state[2] == 0
    cut = Placed(found, [new(3)], prev=[-1, -1, -1, 1])
    assert (cut.row(0), cut.state[2]) == (["1", ..., "d"], 1)


def test_a_column_without_a_slot_is_passed_over() -> None:
    placed = Placed(framed(insert("1", "beta", "c")), [new(0)], slot=[1, -1, 0])
    assert placed.row(0)[:2] == ["c", "1"]


def test_a_ref_below_zero_is_a_row_of_nulls() -> None:
    placed = Placed(framed(insert("1", "b", "c")), [-1, new(0)])
    assert [placed.row(0), placed.row(1)] == [[None] * 3, ["1", "b", "c"]]


def test_rows_end_where_the_bytes_run_out_but_not_before_the_first() -> None:
    found = framed(*(insert("12", "34", "56") for _ in range(5)))
    refs = [new(at) for at in range(5)]
    assert [Placed(found, refs, max_bytes=n).done for n in (1, 12, 17, 18, 30)] == [1, 2, 2, 3, 5]


@pytest.mark.parametrize(
    ("message", "ref", "refused"),
    [
        (insert("1", "b"), new(0), True),
        (insert("1", "b", "c", "d"), new(0), True),
        (delete(old=["1", "b"]), old(0), True),
        (delete(old=["1", "b", "c", "surplus"]), old(0), False),
        (update(["1", ..., "c"], old=["1", "b", "c", "surplus"]), new(0), False),
        (update(["1", ..., "c"], old=["1", "b"]), new(0), True),
    ],
)
def test_only_an_old_tuple_may_have_more_columns(message: Message, ref: int, refused: bool) -> None:
    placed = Placed(framed(message, insert("1", "b", "c")), [new(1), ref])
    assert placed.done == (1 if refused else 2)
    assert placed.state[:2].tolist() == ([tuples.WRONG_COUNT, 1] if refused else [0, 0])


def test_tuples_are_whole_if_all_values_were_sent() -> None:
    found = framed(insert("1", None, "c"), update(["1", ..., "c"]), insert("1", "b"))
    buf = tuples.readonly(found.buf)

    def whole(*refs: int) -> bool:
        return bool(tuples.are_whole(buf, found.new_off, np.array(refs, np.int64), COLUMNS))

    assert whole(new(0), new(0))
    assert not whole(new(0), new(1))
    assert not whole(new(2))


def test_integers_are_big_endian() -> None:
    buf = np.array([0xFF, 0xFE, 0xFD, 0xFC, 0, 0, 0, 7], np.uint8)
    assert tuples.be16(buf, 0) == 0xFFFE
    assert tuples.be32(buf, 0) == 0xFFFEFDFC
    assert tuples.be64(buf, 0) == int.from_bytes(buf.tobytes(), "big", signed=True)


def test_a_read_only_view_shares_the_bytes() -> None:
    buf = np.zeros(3, np.uint8)
    view = tuples.readonly(buf)
    buf[1] = 5
    assert view.tolist() == [0, 5, 0]
    assert (view.flags.writeable, buf.flags.writeable) == (False, True)
