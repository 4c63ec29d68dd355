"""Transactions that are sent while they run come out whole, once, and without what was undone."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog.errcodes import IoError, ProtocolViolation
from catalog.pg_lsn import LSN
from tests.workers.columnar.records import TABLE, insert, transaction
from tests.workers.columnar.stub_publisher import COPY_DONE, streaming, wal
from tests.workers.columnar.test_drain import OVER, drain_of
from tests.workers.stream.streamed import Row, Running, StreamingPublisher
from tests.workers.transactions import relation
from workers.apply.parallel.pieces import Pieces
from workers.changes.relation_map import LogicalRepRelMap
from workers.columnar.drain import DrainStatus
from workers.columnar.frame import frame
from workers.proto import decode, encode
from workers.proto.messages import (
    Begin,
    BeginPrepare,
    Insert,
    Message,
    Prepare,
    Relation,
    StreamAbort,
    StreamCommit,
    StreamPrepare,
    StreamStart,
    StreamStop,
)
from workers.stream.batch import Batch
from workers.stream.spool import Spool

MEMORY = 2 << 20
BIG = "x" * 100_000
Found = list[tuple[int, list[Row]]]


def receive(spool: Spool, messages: Iterable[bytes]) -> list[int]:
    """Through a real libpq and the drain kernel into the spool; the ends of transactions."""

    def script(sock: socket.socket) -> None:
        sock.sendall(b"".join(wal(each) for each in messages) + COPY_DONE)

    ends: list[int] = []
    with streaming(script) as conn:
        drain, status = drain_of(conn), DrainStatus.IDLE
        while status not in OVER:
            result = drain.run(*spool.writable())
            status = result.status
            ends += result.commits[:, 2].tolist()
            streamed_end = spool.received(result)
            ends += [] if streamed_end is None else [int(streamed_end)]
            if status is DrainStatus.FULL:
                spool.grow(result.need)
            elif status is DrainStatus.IDLE:
                select.select([conn.socket], [], [], 10)
        drain.close()
    return ends


def batches(spool: Spool) -> list[Batch]:
    taken = []
    while (batch := spool.take(1 << 20, 1_000)) is not None:
        taken.append(batch)
    return taken


def transactions(taken: Iterable[Batch]) -> Found:
    """Every transaction's end and rows; a row is read with the relation in force."""
    found: Found = []
    relmap = LogicalRepRelMap()
    for batch in taken:
        framed = frame(batch.buf, batch.start, batch.end)
        assert framed.txns.end_lsn.tolist() == batch.end_lsn.tolist()
        assert np.diff(framed.txns.first_change).tolist() == batch.commits[:, 4].tolist()
        found += [(int(end), []) for end in batch.end_lsn]
        first = len(found) - batch.ntxns
        controls = list(framed.control)
        for at in range(len(framed)):
            while controls and controls[0].before_change <= at:
                _obey(batch, controls.pop(0), relmap)
            offset = int(framed.new_off[at]) - 6  # type, relation, "N"
            row = decode.message(_message(batch, offset))
            assert isinstance(row, Insert)
            version, value = (column.value or b"" for column in row.new)
            relation = relmap.open(TABLE)
            assert relation.columns[0].name == version.decode(), "another transaction's relation"
            found[first + int(framed.txn[at])][1].append((version.decode(), value.decode()))
        for control in controls:
            _obey(batch, control, relmap)
    return found


def _message(batch: Batch, offset: int) -> bytes:
    length = int.from_bytes(batch.buf[offset - 4 : offset].tobytes(), "little")
    return batch.buf[offset : offset + length].tobytes()


def _obey(batch: Batch, control: Any, relmap: LogicalRepRelMap) -> None:
    decoded = decode.message(_message(batch, control.offset))
    if isinstance(decoded, Relation):
        relmap.update(decoded)


STEPS = (
    "insert", "insert", "insert", "savepoint", "savepoint", "release", "roll_back", "roll_back",
    "stream", "stream", "commit", "abort", "alter_publication",
)  # fmt: skip


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(STEPS)), max_size=60))
def test_what_commits_comes_out_in_commit_order(
    tmp_path: Path, steps: list[tuple[int, str]]
) -> None:
    """Three sessions at a time, savepoints in savepoints, transactions that are sent at once."""
    publisher, running = StreamingPublisher(), [Running() for _ in range(3)]
    for session, step in steps:
        if step == "alter_publication":
            publisher.alter_publication()
            continue
        getattr(publisher, step)(running[session])
        if step in ("commit", "abort"):
            running[session] = Running()
    spool = Spool(tmp_path, memory_limit=MEMORY, segment_bytes=1 << 20)
    ends = receive(spool, publisher.sent)
    assert transactions(batches(spool)) == publisher.committed
    assert ends == [end for end, _ in publisher.committed]
    assert spool.is_empty()
    assert not spool.has_open_transaction()
    spool.close()


def come_out(tmp_path: Path, publisher: StreamingPublisher, rows: list[list[str]]) -> None:
    """The rows' versions by transaction; each row is read with the relation that it was sent with.

    An ordinary transaction without a Relation message comes last.
    """
    relations = sum(each[:1] == b"R" for each in publisher.sent)
    last = Running()
    publisher.insert(last)
    publisher.commit(last)
    assert sum(each[:1] == b"R" for each in publisher.sent) == relations
    spool = Spool(tmp_path, memory_limit=MEMORY, segment_bytes=1 << 20)
    receive(spool, publisher.sent)
    found = transactions(batches(spool))
    assert found == publisher.committed
    assert [[version for version, _ in each] for _, each in found] == rows


def begun(publisher: StreamingPublisher) -> Running:
    """A transaction with one row, which is sent as a part."""
    running = Running()
    publisher.insert(running)
    publisher.stream(running)
    return running


def test_a_newer_relation_outside_of_the_transaction_holds_behind_it(tmp_path: Path) -> None:
    publisher = StreamingPublisher()
    running, other = begun(publisher), Running()
    publisher.alter_publication()
    publisher.insert(other)
    publisher.commit(other)
    publisher.commit(running)
    come_out(tmp_path, publisher, [["v1"], ["v0"], ["v1"]])


def test_a_relation_that_was_rolled_back_holds_nowhere(tmp_path: Path) -> None:
    publisher = StreamingPublisher()
    running, other = begun(publisher), Running()
    publisher.alter_publication()
    publisher.insert(other)
    publisher.commit(other)
    publisher.savepoint(running)
    publisher.insert(running)
    publisher.stream(running)
    publisher.roll_back(running)
    publisher.commit(running)
    come_out(tmp_path, publisher, [["v1"], ["v0"], ["v1"]])


def test_a_newer_relation_of_another_transaction_in_progress_holds(tmp_path: Path) -> None:
    publisher = StreamingPublisher()
    older = begun(publisher)
    publisher.alter_publication()
    newer = begun(publisher)
    publisher.commit(newer)
    publisher.commit(older)
    come_out(tmp_path, publisher, [["v1"], ["v0"], ["v1"]])


def test_the_relation_of_a_transaction_that_is_rolled_back_is_not_in_force(tmp_path: Path) -> None:
    publisher = StreamingPublisher()
    ordinary = Running()
    publisher.insert(ordinary)
    publisher.commit(ordinary)
    undone = begun(publisher)
    publisher.abort(undone)
    come_out(tmp_path, publisher, [["v0"], ["v0"]])


@pytest.mark.parametrize("memory", [1 << 20, 64 << 20], ids=["on disk", "in memory"])
def test_large_transactions_in_turns_with_subtransactions_undone(
    tmp_path: Path, memory: int
) -> None:
    """Rows of 100 kB: 8 MB of each transaction, of which a third is rolled back."""
    publisher, running = StreamingPublisher(), [Running(), Running()]
    for part in range(8):
        for each in running:
            for _ in range(3):
                publisher.savepoint(each)
                for _ in range(4):
                    publisher.insert(each)
                publisher.stream(each)
                if part % 3 == 1:
                    publisher.roll_back(each)
                else:
                    publisher.release(each)
    publisher.commit(running[1])
    publisher.abort(running[0])
    spool = Spool(tmp_path, memory_limit=memory, segment_bytes=1 << 20)
    receive(spool, [_larger(each) for each in publisher.sent])
    found = transactions(batches(spool))
    assert [(end, [(v, each[: -len(BIG)]) for v, each in rows]) for end, rows in found] == (
        publisher.committed
    )
    assert spool.size() == (0, 0)
    assert not list(tmp_path.iterdir())
    spool.close()


@pytest.mark.parametrize("memory", [1 << 20, 64 << 20], ids=["on disk", "in memory"])
def test_what_is_read_while_a_transaction_runs_is_what_it_commits(
    tmp_path: Path, memory: int
) -> None:
    """Records are read beside the receiving, and again where a subtransaction was rolled back."""
    publisher, running = StreamingPublisher(), [Running(), Running(), Running()]
    for part in range(10):
        for number, each in enumerate(running):
            publisher.savepoint(each)
            for _ in range(3 + number):
                publisher.insert(each)
            publisher.stream(each)
            if part % 3 == number or (part == 9 and number == 0):
                publisher.roll_back(each)
            elif part % 2:
                publisher.release(each)
    publisher.roll_back(running[0])
    publisher.commit(running[1])
    publisher.commit(running[0])
    publisher.abort(running[2])
    spool = Spool(tmp_path, memory_limit=memory, segment_bytes=1 << 20)
    spool.look_after(300_000)
    read: dict[int, Pieces[bytes]] = {}
    grown = taken = 0
    sent = [_larger(each) for each in publisher.sent]
    for at in range(0, len(sent), 7):
        receive(spool, sent[at : at + 7])
        grown += spool.has_grown
        for received in spool.running():
            pieces = read.setdefault(received.number, Pieces(150_000, 900_000))
            if received.cut is not None:
                taken += len(pieces.cut(received.cut))
            part_of = pieces.next_part(received)
            if part_of is None or received.is_complete:
                continue
            found = spool.read_running(received.number, *part_of)
            assert found is not None
            pieces.begin(len(found))
            assert pieces.complete(found.tobytes()) is None
    assert grown
    assert taken, "no piece was rolled back"
    whole = [batch for batch in batches(spool) if batch.streamed is not None]
    assert len(whole) == 2
    for batch in whole:
        assert batch.streamed is not None
        assert batch.streamed.is_complete
        pieces = read.pop(batch.streamed.number)
        if batch.streamed.cut is not None:
            pieces.cut(batch.streamed.cut)
        first = batch.start + len(encode.message(Begin(LSN(1), 1, 1))) + 4
        assert len(pieces.pieces) > 1
        for piece in pieces.pieces:
            now = batch.buf[first + piece.start : first + piece.end].tobytes()
            assert now == piece.made
    assert spool.running() == []
    spool.close()


def test_a_transaction_that_alters_a_table_is_told(tmp_path: Path) -> None:
    """Not by a message that comes again, and not once the change is rolled back."""
    spool = Spool(tmp_path, memory_limit=MEMORY, segment_bytes=1 << 20)
    other, wider = relation(2, "b", "id"), relation(1, "a", "id", "v", "w")
    changes = [relation(1, "a", "id", "v"), other, relation(1, "a", "id", "v")]

    def part(*messages: Message, sub: int = 7, first: bool = False) -> list[bytes]:
        inside = [encode.streamed(each, sub) for each in messages]
        return [encode.message(StreamStart(7, first)), *inside, encode.message(StreamStop())]

    def altered() -> list[bool]:
        return [each.is_altered for each in spool.running()]

    receive(spool, part(*changes, first=True))
    assert altered() == [False]
    receive(spool, part(wider, sub=9))
    assert altered() == [True]
    receive(spool, [encode.message(StreamAbort(7, 9))])
    assert altered() == [False]
    receive(spool, part(*changes, wider))
    assert altered() == [True]
    spool.close()


def test_what_was_cut_meanwhile_is_not_read(tmp_path: Path) -> None:
    spool = Spool(tmp_path, memory_limit=MEMORY, segment_bytes=1 << 20)
    publisher, each = StreamingPublisher(), Running()
    for undo in (False, True):
        publisher.savepoint(each)
        publisher.insert(each)
        publisher.stream(each)
        if undo:
            publisher.roll_back(each)
    receive(spool, publisher.sent[:-1])
    [received] = spool.running()
    receive(spool, publisher.sent[-1:])
    assert spool.read_running(received.number, 0, received.size) is None
    [cut] = spool.running()
    assert (cut.cut, cut.size) == (received.calm, received.calm)
    assert spool.read_running(received.number, 0, received.size) is not None
    assert spool.read_running(received.number + 1, 0, 1) is None
    spool.close()


def _larger(data: bytes) -> bytes:
    """The message with a value of 100 kB if it is an Insert."""
    if data[:1] != b"I":
        return data
    xid = int.from_bytes(data[1:5], "big")
    row = decode.message(data[:1] + data[5:])
    assert isinstance(row, Insert)
    version, value = (str((column.value or b"").decode()) for column in row.new)
    return encode.streamed(insert(version, value + BIG), xid)


def streamed_rows(xid: int, count: int, *, first: bool = True) -> list[bytes]:
    rows: list[Message] = [insert("v0", BIG)] * count
    inside = [encode.streamed(each, xid) for each in rows]
    return [encode.message(StreamStart(xid, first)), *inside, encode.message(StreamStop())]


def test_transactions_in_progress_share_the_memory_of_the_spool(tmp_path: Path) -> None:
    """Ten of 1 MB within 2 MB, and an ordinary transaction that is larger than the rest."""
    spool = Spool(tmp_path, memory_limit=MEMORY, segment_bytes=1 << 20)
    for xid in range(1, 11):
        receive(spool, streamed_rows(xid, 10))
        memory, disk = spool.size()
        assert memory <= MEMORY
        assert memory + disk >= xid * 1_000_000
    receive(spool, transaction([insert("v0", BIG)] * 15, 1))
    assert spool.size()[0] <= MEMORY
    assert 1_500_000 <= spool.waiting() < 1_600_000, "what is in progress does not wait for a batch"
    receive(spool, [encode.message(StreamCommit(7, LSN(500), LSN(600), 0))])
    assert [(batch.ntxns, batch.nchanges) for batch in batches(spool)] == [(1, 15), (1, 10)]
    spool.close()
    assert spool.size() == (0, 0)


def test_small_transactions_share_a_batch_and_a_large_one_is_alone(tmp_path: Path) -> None:
    spool = Spool(tmp_path, memory_limit=64 << 20, segment_bytes=32 << 20)
    sent = []
    for xid, count in ((1, 1), (2, 2), (3, 20), (4, 1)):
        commit = StreamCommit(xid, LSN(100 * xid), LSN(100 * xid + 50), 0)
        sent += [*streamed_rows(xid, count), encode.message(commit)]
    receive(spool, sent)
    found = [
        batch.commits[:, 4].tolist()
        for batch in (spool.take(1 << 30, 99) for _ in range(3))
        if batch
    ]
    assert found == [[1, 2], [20], [1]]


def test_an_abort_of_what_was_never_sent_changes_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path, memory_limit=MEMORY, segment_bytes=1 << 20)
    receive(spool, [*streamed_rows(1, 1), encode.message(StreamAbort(1, 77))])
    receive(spool, [encode.message(StreamAbort(2, 2)), encode.message(StreamAbort(2, 3))])
    receive(spool, [encode.message(StreamCommit(1, LSN(5), LSN(6), 0))])
    assert [batch.nchanges for batch in batches(spool)] == [1]


def test_a_streamed_prepare_becomes_an_ordinary_one(tmp_path: Path) -> None:
    """An end of the PREPARE behind the last transaction counts as the transaction's end."""
    spool = Spool(tmp_path, memory_limit=MEMORY, segment_bytes=1 << 20)
    gid = "g" * 199
    for lsn in (5, 400):
        receive(spool, streamed_rows(7, 2))
        prepare = encode.message(StreamPrepare(LSN(lsn), LSN(lsn + 1), 9, 7, gid))
        assert receive(spool, [*transaction([], 1), prepare]) == [150, max(150, lsn + 1)]
        [batch] = batches(spool)
        assert batch.commits[:, 1:].tolist() == [
            [100, 150, 7, 0],
            [lsn, max(150, lsn + 1), 9, 2],
        ]
        start = int(batch.commits[0, 0])
        kinds = []
        while start < batch.end:
            data = _message(batch, start + 4)
            kinds.append(decode.message(data))
            start += 4 + len(data)
        row = insert("v0", BIG)
        same = (LSN(lsn), LSN(lsn + 1), 9, 7, gid)
        assert kinds == [BeginPrepare(*same), row, row, Prepare(*same)]
        spool = Spool(tmp_path, memory_limit=MEMORY, segment_bytes=1 << 20)


START, STOP = encode.message(StreamStart(7, True)), encode.message(StreamStop())
COMMIT = encode.message(StreamCommit(7, LSN(5), LSN(6), 0))
ABORT = encode.message(StreamAbort(7, 7))


@pytest.mark.parametrize(
    ("sent", "primary"),
    [
        ([START, START], "duplicate STREAM START message"),
        ([STOP], "STREAM STOP message without STREAM START"),
        ([START, COMMIT], "STREAM COMMIT message without STREAM STOP"),
        ([START, ABORT], "STREAM ABORT message without STREAM STOP"),
        ([COMMIT], "STREAM COMMIT message of an unknown transaction"),
        ([START, STOP, START], "a part of a streamed transaction was sent out of order"),
        (
            [encode.message(StreamStart(7, False))],
            "a part of a streamed transaction was sent out of order",
        ),
        ([*transaction([])[:1], START], "logical replication message sent out of order"),
        ([START, *transaction([])[:1]], "logical replication message sent out of order"),
        ([START, b"I\0\0\0\0"], "invalid transaction ID in streamed replication transaction"),
        ([START, b"I\0\0"], "insufficient data left in message"),
        ([b"S\0\0\0\0\1"], "invalid transaction ID in streamed replication transaction"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_messages_out_of_order_are_refused(tmp_path: Path, sent: list[bytes], primary: str) -> None:
    spool = Spool(tmp_path, memory_limit=MEMORY, segment_bytes=1 << 20)
    with pytest.raises(ProtocolViolation) as caught:
        receive(spool, sent)
    assert caught.value.primary == primary
    assert caught.value.detail


def test_the_longer_abort_is_refused(tmp_path: Path) -> None:
    """H-29: position and time come only where parallel was asked for, and it never is."""
    spool = Spool(tmp_path, memory_limit=MEMORY, segment_bytes=1 << 20)
    receive(spool, [*streamed_rows(1, 1), encode.message(StreamAbort(1, 1))])
    assert spool.size() == (0, 0)
    with pytest.raises(ProtocolViolation, match="invalid message format"):
        receive(spool, [*streamed_rows(1, 1), encode.message(StreamAbort(1, 1)) + bytes(16)])


def test_a_disk_that_is_full_is_an_error_of_the_spool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path, memory_limit=1 << 20, segment_bytes=1 << 20)
    receive(spool, streamed_rows(1, 20))

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("workers.stream.segment.write_all", full)
    with pytest.raises(IoError) as caught:
        receive(spool, streamed_rows(1, 20, first=False))
    assert caught.value.code == "53100"
    spool.close()
