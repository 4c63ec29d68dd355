"""Logical messages become rows, as the drain kernel takes them from a libpq."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.errcodes import ProtocolViolation
from catalog.pg_lsn import LSN
from tests.workers.columnar.records import insert, record
from tests.workers.columnar.stub_publisher import streaming, wal
from tests.workers.columnar.test_drain import drain_all, sends
from workers.columnar.column_reader import ColumnReader, Layout, MappedColumn, in_form
from workers.columnar.drain import DrainResult
from workers.columnar.frame import frame
from workers.proto import encode
from workers.proto.message_rows import MESSAGES
from workers.proto.messages import (
    Begin,
    ColumnStatus,
    Commit,
    Insert,
    LogicalMessage,
    Message,
    TupleColumn,
)
from workers.publisher.binary_columns import BinaryForms

CLOCK = 700


def row_of(said: LogicalMessage) -> bytes:
    """The insert that a message becomes."""
    values = (
        said.prefix.encode(),
        said.content,
        int(said.lsn).to_bytes(8, "big"),
        bytes([said.transactional]),
    )
    columns = tuple(TupleColumn(ColumnStatus.BINARY, value) for value in values)
    return record(encode.message(Insert(MESSAGES.relid, columns)))


def records_of(said: LogicalMessage) -> bytes:
    """The records that a message outside of transactions becomes."""
    final = LSN(said.lsn - 1)
    begin, commit = Begin(final, CLOCK, 0), Commit(final, said.lsn, CLOCK)
    return record(encode.message(begin)) + row_of(said) + record(encode.message(commit))


def sent(*messages: Message) -> bytes:
    return b"".join(wal(encode.message(each), end=90, clock=CLOCK) for each in messages)


def received(stream: bytes, size: int = 4096) -> tuple[bytes, list[DrainResult]]:
    with streaming(sends(stream)) as conn:
        return drain_all(conn, size, messages=True)


def alone(lsn: int, content: bytes = b"said", prefix: str = "p") -> LogicalMessage:
    return LogicalMessage(False, LSN(lsn), prefix, content)


@pytest.mark.parametrize("size", [4, 100, 4096])
def test_a_message_outside_of_transactions_is_a_transaction_that_ends_at_its_lsn(size: int) -> None:
    """Whatever the size of the buffer is, in which it may not fit at first."""
    said = [alone(500), alone(620, b"", ""), alone(700, b"x" * 3000)]
    found, results = received(sent(*said), size)
    assert found == b"".join(map(records_of, said))
    commits = np.concatenate([result.commits for result in results])[:, 1:]
    assert commits.tolist() == [[each.lsn - 1, each.lsn, CLOCK, 1] for each in said]
    assert results[-1].last_end == 700


def test_a_message_of_a_transaction_is_an_insert_of_it() -> None:
    said = LogicalMessage(True, LSN(40), "audit", b"a\0b")
    begin, commit = Begin(LSN(100), CLOCK, 9), Commit(LSN(100), LSN(150), CLOCK)
    found, results = received(sent(begin, insert("1"), said, insert("2"), commit))
    plain = [record(encode.message(each)) for each in (begin, insert("1"), insert("2"), commit)]
    assert found == b"".join([*plain[:2], row_of(said), *plain[2:]])
    commits = np.concatenate([result.commits for result in results])[:, 1:]
    assert commits.tolist() == [[100, 150, CLOCK, 3]]


def test_a_stream_without_messages_keeps_what_comes_all_the_same() -> None:
    said = encode.message(alone(500))
    with streaming(sends(wal(said))) as conn:
        found, results = drain_all(conn, 4096)
    assert found == record(said)
    assert not any(len(result.commits) for result in results)


@pytest.mark.parametrize(
    "broken",
    [
        encode.message(alone(500))[:-1],
        encode.message(alone(500)) + b"x",
        encode.message(alone(500))[:10],
        encode.message(alone(500))[:12],
        b"M\0" + bytes(8) + b"no end",
    ],
)
def test_a_malformed_message_is_refused(broken: bytes) -> None:
    with streaming(sends(wal(broken))) as conn, pytest.raises(ProtocolViolation):
        drain_all(conn, 4096, messages=True)


@settings(max_examples=50, deadline=None)
@given(
    prefix=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    content=st.binary(max_size=300),
    lsn=st.integers(2, (1 << 63) - 1),
)
def test_the_row_has_what_was_said(prefix: str, content: bytes, lsn: int) -> None:
    found, _ = received(sent(alone(lsn, content, prefix)))
    framed = frame(np.frombuffer(found, np.uint8), 0, len(found))
    assert framed.relid.tolist() == [MESSAGES.relid]
    changes = in_form(framed.changes(slice(None)), BinaryForms(lambda _: {}).of(MESSAGES))
    types: tuple[pa.DataType, ...] = (pa.string(), pa.binary(), pa.string(), pa.bool_())
    columns = tuple(
        MappedColumn(column.name, n, type)
        for n, (column, type) in enumerate(zip(MESSAGES.columns, types, strict=True))
    )
    reader = ColumnReader(changes, Layout(4, (), columns), columns)
    ((_, arrays, _),) = reader.chunks(range(1, 2, 2))
    assert [each.to_pylist() for each in arrays] == [[prefix], [content], [str(LSN(lsn))], [False]]
