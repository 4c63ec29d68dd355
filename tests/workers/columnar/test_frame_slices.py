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
from tests.workers.columnar.records import TABLE, insert, record, spool, transaction
from workers.columnar.frame import Frame, frame
from workers.columnar.frame_slices import fits_one_slice, frame_slices
from workers.proto.messages import Message, Truncate

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


def test_what_fits_one_slice() -> None:
    assert fits_one_slice(100, 10, 100 + 10 * SLICE_CHANGE_BYTES)
    assert not fits_one_slice(101, 10, 100 + 10 * SLICE_CHANGE_BYTES)
    assert fits_one_slice(1, SLICE_CHANGES, 1 << 40)
    assert not fits_one_slice(1, SLICE_CHANGES + 1, 1 << 40)
