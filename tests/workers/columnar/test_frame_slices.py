"""Slices of a transaction: together they are the frame, and each is small."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.errcodes import ProtocolViolation
from config.limits import SLICE_CHANGE_BYTES, SLICE_CHANGES
from tests.workers.columnar.histories import histories
from tests.workers.columnar.records import (
    TABLE,
    delete,
    insert,
    record,
    spool,
    transaction,
    update,
)
from workers.columnar import frame_slices as slicing
from workers.columnar.frame import Frame, frame
from workers.columnar.frame_slices import (
    StandIn,
    fits_one_slice,
    frame_slices,
    stand_in_records,
)
from workers.proto import encode
from workers.proto.messages import Delete, Insert, Message, Relation, Truncate, Update

MANY = 10**9
TWO_CHANGES = 2 * (SLICE_CHANGE_BYTES + 40)


def assert_same(whole: Frame, slices: list[Frame]) -> None:
    for name in ("kind", "relid", "old_kind", "old_off", "new_off"):
        joined = np.concatenate([getattr(each, name) for each in slices])
        assert np.array_equal(joined, getattr(whole, name)), name
    starts = [0, *accumulate(map(len, slices))]
    controls = [
        (control.kind, control.offset, control.txn, start + control.before_change)
        for each, start in zip(slices, starts, strict=False)
        for control in each.control
    ]
    assert controls == [(c.kind, c.offset, c.txn, c.before_change) for c in whole.control]


@settings(max_examples=50, deadline=None)
@given(histories(), st.sampled_from([1, TWO_CHANGES, MANY]))
def test_slices_are_the_frame_of_the_whole_transaction(
    history: tuple[list[Message], object, object], most_bytes: int
) -> None:
    emptied = Truncate(cascade=False, restart_seqs=False, relids=(TABLE,))
    messages = [*history[0], emptied, *history[0]]
    buf = spool(*transaction(messages))
    slices = list(frame_slices(buf, 0, len(buf), most_bytes))
    assert_same(frame(buf, 0, len(buf)), slices)
    assert all(each.txns.final_lsn.tolist() == [100] for each in slices)
    assert slices[-1].txns.end_lsn.tolist() == [150]
    assert [each.opened is None for each in slices] == [False] * (len(slices) - 1) + [True]
    if most_bytes == TWO_CHANGES:
        assert max(map(len, slices)) <= 2


def test_a_change_larger_than_the_limit_is_a_slice_of_its_own() -> None:
    buf = spool(*transaction([insert("1"), insert("x" * 10_000), insert("2")]))
    assert [len(each) for each in frame_slices(buf, 0, len(buf), 300)] == [1, 1, 1]


def test_a_transaction_without_its_end_is_refused_in_its_last_slice() -> None:
    unfinished = transaction([insert("1"), insert("2")])[:-1]
    buf = spool(*unfinished)
    with pytest.raises(ProtocolViolation, match="ends without a commit message"):
        list(frame_slices(buf, 0, len(buf), 1))


@pytest.mark.parametrize("most_bytes", [1, MANY])
def test_a_broken_record_is_refused_with_its_place(most_bytes: int) -> None:
    good = b"".join(record(each) for each in transaction([insert("1"), insert("2")])[:3])
    buf = np.frombuffer(good + b"\xff\xff\xff\x7fI", np.uint8)
    with pytest.raises(ProtocolViolation, match="insufficient data") as caught:
        list(frame_slices(buf, 0, len(buf), most_bytes))
    assert f"at byte {len(good)} of the spool" in str(caught.value.detail)


def test_rows_to_look_up_end_a_slice_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    changes: list[Message] = [insert("1"), update(("1",)), insert("2")]
    changes += [delete(key=("2",)), update(("3",)), insert("3")]
    buf = spool(*transaction(changes))
    monkeypatch.setattr(slicing, "SLICE_CHANGES", 5)
    assert [len(each) for each in frame_slices(buf, 0, len(buf), MANY)] == [5, 1]
    monkeypatch.setattr(slicing, "SLICE_OF_ROWS_CHANGES", 1)
    assert [len(each) for each in frame_slices(buf, 0, len(buf), MANY)] == [3, 1, 2]


def test_what_fits_one_slice() -> None:
    assert fits_one_slice(100, 10, 100 + 10 * SLICE_CHANGE_BYTES)
    assert not fits_one_slice(101, 10, 100 + 10 * SLICE_CHANGE_BYTES)
    assert fits_one_slice(1, SLICE_CHANGES, 1 << 40)
    assert not fits_one_slice(1, SLICE_CHANGES + 1, 1 << 40)


def places(slices: list[Frame]) -> list[tuple[int, int]]:
    """The changes of each slice, and where the next slice begins."""
    return [(len(each), each.end) for each in slices]


def test_a_slice_ends_where_it_is_told_to() -> None:
    records = [record(each) for each in transaction([insert("1"), insert("2"), insert("3")])]
    buf = np.frombuffer(b"".join(records), np.uint8)
    ends = list(accumulate(map(len, records)))  # Begin, three inserts, Commit
    slices = list(frame_slices(buf, 0, len(buf), MANY, stops=[0, ends[0], ends[2]]))
    assert places(slices) == [(0, ends[0]), (2, ends[2]), (1, ends[4])]
    assert_same(frame(buf, 0, len(buf)), slices)


SHAPE = Relation(TABLE, "s", "t", "d", ())
OTHER = Relation(TABLE + 1, "s", "u", "d", ())


def shown_of(*messages: Message) -> bytes | None:
    """The records of a stand-in for the messages, which are the inside of a transaction."""
    buf = spool(*map(encode.message, messages))
    inside = np.array([1, 0, 0, 0, 0, 0, 0], np.int64)
    shown = stand_in_records(next(frame_slices(buf, 0, len(buf), MANY, inside=inside)))
    return None if shown is None else shown.tobytes()


def test_a_stand_in_takes_the_place_of_records_that_are_not_read() -> None:
    changes: list[Message] = [SHAPE, *(insert(str(number)) for number in range(9))]
    records = [record(each) for each in transaction(changes)]
    start, end = len(records[0]), sum(map(len, records[:6]))
    shown = shown_of(*changes[:5])
    assert shown == b"".join(records[1:3]), "the relation, and its first insert"
    unread = records[0] + b"\xff" * (end - start) + b"".join(records[6:])
    buf = np.frombuffer(unread, np.uint8)
    stand_ins = {start: StandIn(end, np.frombuffer(shown, np.uint8))}
    slices = list(frame_slices(buf, 0, len(buf), MANY, stops=[start, end], stand_ins=stand_ins))
    assert places(slices) == [(0, start), (1, end), (5, len(buf))]
    assert [len(each.control) for each in slices] == [0, 1, 0]
    assert all(each.txns.final_lsn.tolist() == [100] for each in slices)
    assert slices[-1].txns.end_lsn.tolist() == [150]


def test_a_stand_in_shows_each_relation_in_order() -> None:
    one, two = insert("1"), Insert(OTHER.relid, ())
    shown = shown_of(SHAPE, one, OTHER, insert("2"), two, two, SHAPE, insert("3"))
    expected: list[Message] = [SHAPE, one, OTHER, two, SHAPE]
    assert shown == spool(*map(encode.message, expected)).tobytes()


def test_a_stand_in_shows_each_kind_of_change() -> None:
    one, two = insert("1"), insert("2")
    assert isinstance(one, Insert)
    update, delete = Update(TABLE, None, None, one.new), Delete(TABLE, "K", one.new)
    shown = shown_of(SHAPE, one, two, delete, update, delete, update, two)
    expected: list[Message] = [SHAPE, one, delete, update]
    assert shown == spool(*map(encode.message, expected)).tobytes()


def test_an_update_with_an_old_row_has_no_stand_in() -> None:
    one = insert("1")
    assert isinstance(one, Insert)
    assert shown_of(SHAPE, one, Update(TABLE, "K", one.new, one.new)) is None
    assert shown_of(SHAPE) == spool(encode.message(SHAPE)).tobytes()
