"""Framing: where every change lies, and what is no frame."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.errcodes import ProtocolViolation
from tests.bench.meters import MB, anonymous_mb
from tests.processes import told_alone
from tests.workers.columnar.records import (
    TABLE,
    delete,
    framed,
    insert,
    record,
    spool,
    transaction,
    update,
)
from tests.workers.proto.cases import BROKEN, CASES, truncated
from workers.columnar import frame as framing
from workers.columnar.frame import Frame, Transactions, frame
from workers.proto import decode, encode
from workers.proto.messages import (
    Begin,
    Commit,
    Delete,
    Insert,
    Message,
    Relation,
    Truncate,
    Update,
)

INSIDE = [(name, data) for name, _, data in CASES if data[:1] not in b"BCbPKrpSEcA"]


def tuple_at(result: Frame, offset: int) -> object:
    """The tuple at an offset, read by the per-message decoder."""
    if offset == 0:
        return None
    raw = result.buf[offset:].tobytes()
    for size in range(2, len(raw) + 1):
        try:
            return decode.message(b"I\0\0\0\0N" + raw[:size]).new  # type: ignore[union-attr] # an I
        except ProtocolViolation:
            continue
    raise AssertionError("no tuple there")


def assert_framed_as_decoded(result: Frame, messages: list[Message]) -> None:
    changes = [each for each in messages if isinstance(each, Insert | Update | Delete)]
    assert len(result) == len(changes)
    for at, change in enumerate(changes):
        assert result.kind[at] == encode.message(change)[0]
        assert result.relid[at] == change.relid
        old_kind = None if isinstance(change, Insert) else change.old_kind
        assert result.old_kind[at] == (ord(old_kind) if old_kind else 0)
        old = None if isinstance(change, Insert) else change.old
        new = None if isinstance(change, Delete) else change.new
        assert tuple_at(result, int(result.old_off[at])) == old
        assert tuple_at(result, int(result.new_off[at])) == new


@pytest.mark.parametrize(("name", "data"), INSIDE, ids=[name for name, _ in INSIDE])
def test_every_message_is_framed_as_the_decoder_reads_it(name: str, data: bytes) -> None:
    message = decode.message(data)
    result = framed(message)
    assert_framed_as_decoded(result, [message])
    for control in result.control:
        raw = result.buf[control.offset : control.offset + control.length].tobytes()
        assert decode.message(raw) == message
        assert (control.kind, control.txn, control.before_change) == (data[0], 0, 0)
    assert len(result) + len(result.control) == 1


def refused(*payloads: bytes) -> tuple[str, str | None]:
    """Primary and DETAIL, which ends with the place in the spool."""
    buf = spool(*payloads)
    with pytest.raises(ProtocolViolation) as caught:
        frame(buf, 0, len(buf))
    assert caught.value.code == "08P01"
    return caught.value.primary, caught.value.detail


def as_decoded(wrong: bytes, at: int) -> tuple[str, str]:
    """The error of the decoder of single messages, for a message whose record begins at ``at``."""
    with pytest.raises(ProtocolViolation) as caught:
        decode.message(wrong)
    detail = f"{caught.value.detail} The message lies at byte {at} of the spool."
    return caught.value.primary, detail


@pytest.mark.parametrize(("name", "data"), INSIDE, ids=[name for name, _ in INSIDE])
def test_a_message_cut_short_anywhere_or_too_long_is_the_decoders_error(
    name: str, data: bytes
) -> None:
    begin, commit = transaction([])
    for wrong in [*truncated(data), data + b"\0"]:
        assert refused(begin, wrong, commit) == as_decoded(wrong, len(record(begin)))


@pytest.mark.parametrize("which", [0, 1])
def test_begin_and_commit_cut_short_or_too_long_are_the_decoders_error(which: int) -> None:
    whole = transaction([])
    for wrong in [*truncated(whole[which]), whole[which] + b"\0"]:
        found = refused(*whole[:which], wrong, *whole[which + 1 :])
        assert found == as_decoded(wrong, which * len(record(whole[0])))


@pytest.mark.parametrize(("name", "data"), BROKEN, ids=[name for name, _ in BROKEN])
def test_what_the_decoder_refuses_is_no_frame(name: str, data: bytes) -> None:
    begin, commit = transaction([])
    around = ([], [commit]) if data[:1] == b"B" else ([begin], [commit])
    found = refused(*around[0], data, *around[1])
    at = sum(len(record(each)) for each in around[0])
    if data:
        assert found == as_decoded(data, at)
    else:  # no record is empty
        place = f"The message lies at byte {at} of the spool."
        assert found[1] == f"The record of a message was cut off. {place}"


def test_a_spool_cut_anywhere_but_between_transactions_is_no_frame() -> None:
    buf = spool(*transaction([insert("1", "x"), delete(key=("1", None))]))
    for end in range(1, len(buf)):
        with pytest.raises(ProtocolViolation):
            frame(buf, 0, end)


def test_transactions_know_their_positions_and_changes() -> None:
    first = transaction([insert("1"), insert("2")], 1)
    second = transaction([], 2)
    third = transaction([update(["1"])], 3)
    buf = spool(*first, *second, *third)
    result = frame(buf, 0, len(buf))
    txns = result.txns
    assert len(txns) == 3
    assert txns.final_lsn.tolist() == [100, 200, 300]
    assert txns.end_lsn.tolist() == [150, 250, 350]
    assert txns.commit_time.tolist() == [7, 7, 7]
    assert txns.xid.tolist() == [1, 2, 3]
    assert txns.first_change.tolist() == [0, 2, 2, 3]
    assert result.txn.tolist() == [0, 0, 2]
    ends = np.cumsum([sum(4 + len(each) for each in one) for one in (first, second, third)])
    assert txns.end.tolist() == ends.tolist()
    assert txns.begin.tolist() == [0, *ends[:-1].tolist()]
    middle = frame(buf, int(txns.begin[1]), int(txns.end[1]))
    assert len(middle.txns) == 1
    assert not len(middle)


def test_controls_stand_between_the_changes() -> None:
    relation = Relation(TABLE, "public", "t", "d", ())
    result = framed(insert("1"), relation, insert("2"), insert("3"), Truncate(False, False, (1,)))
    assert [(chr(each.kind), each.before_change) for each in result.control] == [
        ("R", 1),
        ("T", 3),
    ]


def test_a_message_may_stand_outside_a_transaction_and_a_change_may_not() -> None:
    message = next(data for name, _, data in CASES if name == "message outside a transaction")
    result = frame(spool(message), 0, len(record(message)))
    assert result.control[0].txn == -1
    lonely = spool(encode.message(insert("1")))
    with pytest.raises(ProtocolViolation, match="out of order"):
        frame(lonely, 0, len(lonely))


ORDER = "Outside of a transaction a begin message was expected; inside, any other."


@pytest.mark.parametrize(
    ("messages", "primary", "detail", "which"),
    [
        (
            [Begin(100, 0, 1), Begin(100, 0, 1)],  # type: ignore[arg-type] # an int will do here
            "logical replication message sent out of order",
            ORDER,
            1,
        ),
        (
            [Commit(100, 150, 0)],  # type: ignore[arg-type] # the same
            "logical replication message sent out of order",
            ORDER,
            0,
        ),
        (
            [Begin(100, 0, 1), Commit(101, 150, 0)],  # type: ignore[arg-type] # the same
            "incorrect commit LSN in commit message",
            "At byte 2 of the commit message the final_lsn of the begin message was expected.",
            1,
        ),
        (
            [Begin(100, 0, 1), Commit(100, 100, 0)],  # type: ignore[arg-type] # the same
            "invalid end_lsn in commit message",
            "At byte 10 of the commit message the end_lsn was expected (behind the commit_lsn).",
            1,
        ),
        (
            [Begin(1 << 63, 0, 1), Commit(1 << 63, 150, 0)],  # type: ignore[arg-type] # the same
            "invalid final_lsn in begin message",
            "At byte 1 of the begin message the final_lsn was expected (below 80000000/0).",
            0,
        ),
        (
            [Begin(100, 0, 1)],  # type: ignore[arg-type] # the same
            "transaction ends without a commit message",
            "Behind the last message a commit message was expected.",
            1,
        ),
    ],
    ids=["nested", "no begin", "other position", "ends at its start", "too far", "no commit"],
)
def test_transactions_out_of_order_are_no_frame(
    messages: list[Message], primary: str, detail: str, which: int
) -> None:
    """What only framing refuses, in words of its own."""
    payloads = [encode.message(message) for message in messages]
    at = sum(len(record(each)) for each in payloads[:which])
    place = f"The message lies at byte {at} of the spool."
    assert refused(*payloads) == (primary, f"{detail} {place}")


def test_the_buffer_may_be_a_read_only_mapping(tmp_path: object) -> None:
    path = f"{tmp_path}/spool"
    buf = spool(*transaction([insert("1", "x")]))
    buf.tofile(path)
    mapped = np.memmap(path, np.uint8, mode="r")
    assert len(frame(mapped, 0, len(mapped))) == 1


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_windows_change_nothing_but_when_pages_are_given_back(data: st.DataObject) -> None:
    inside = data.draw(st.lists(st.lists(st.sampled_from(INSIDE), max_size=4), max_size=4))
    payloads: list[bytes] = []
    for number, messages in enumerate(inside, start=1):
        begin, commit = transaction([], number)
        payloads += [begin, *(raw for _, raw in messages), commit]
    if len(payloads) > 0 and data.draw(st.booleans()):
        payloads.pop(data.draw(st.integers(0, len(payloads) - 1)))
    buf = spool(*payloads)
    given_back: list[tuple[int, int]] = []

    whole = frame_or_error(buf)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(framing, "FRAME_WINDOW_BYTES", data.draw(st.integers(1, 100)))
        parts = frame_or_error(buf, lambda *window: given_back.append(window))
    if isinstance(whole, str) or isinstance(parts, str):
        assert parts == whole
        return
    ends = [end for _, end in given_back]
    assert ends.count(len(buf)) == 2 * bool(payloads), "two passes over everything"
    assert [start for start, _ in given_back] == [end % len(buf) for end in [0, *ends[:-1]] if ends]
    for name in ("kind", "relid", "txn", "old_kind", "old_off", "new_off"):
        np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))
    assert parts.control == whole.control
    for name in Transactions.__slots__:
        np.testing.assert_array_equal(getattr(parts.txns, name), getattr(whole.txns, name))


def frame_or_error(
    buf: npt.NDArray[np.uint8], give_back: Callable[[int, int], None] | None = None
) -> Frame | str:
    try:
        return frame(buf, 0, len(buf), give_back)
    except ProtocolViolation as error:
        return f"{error} {error.detail}"


ROWS = 1_000_000


def grown_by_a_frame() -> float:
    """Bytes that the memory of this process grows by while ``ROWS`` inserts are framed."""
    begin, commit = transaction([], 1)
    one = spool(encode.message(insert("1", "a")))
    buf = np.concatenate([spool(begin), np.tile(one, ROWS), spool(commit)])
    frame(buf, 0, len(buf))  # compiled, if it was not
    before = anonymous_mb(os.getpid())
    result = frame(buf, 0, len(buf))
    assert len(result) == ROWS
    return (anonymous_mb(os.getpid()) - before) * MB


def test_inserts_of_one_transaction_take_half_of_the_memory() -> None:
    # A process of its own, which maps each array by itself: no array lies where another was freed.
    grown = told_alone("grown_by_a_frame", __name__, {"MALLOC_MMAP_THRESHOLD_": "65536"})
    assert 8 * ROWS < grown < 15 * ROWS, "26 bytes a change would be written"


def test_nothing_is_a_frame_of_nothing() -> None:
    result = frame(np.empty(0, np.uint8), 0, 0)
    assert (len(result), result.control, len(result.txns)) == (0, [], 0)
    with pytest.raises(ValueError, match="inside"):
        frame(np.empty(0, np.uint8), 0, 1)


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_damaged_bytes_are_framed_exactly_when_the_decoder_takes_them(data: st.DataObject) -> None:
    raw = bytearray(data.draw(st.sampled_from([each for _, each in INSIDE])))
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(1, len(raw) - 1))] = data.draw(st.integers(0, 255))
    begin, commit = transaction([])
    try:
        message = decode.message(bytes(raw))
    except ProtocolViolation as error:
        if "UTF-8" not in str(error.detail):  # names are the decoder's business
            wanted = as_decoded(bytes(raw), len(record(begin)))
            assert refused(begin, bytes(raw), commit) == wanted
        return
    buf = spool(begin, bytes(raw), commit)
    assert_framed_as_decoded(frame(buf, 0, len(buf)), [message])
