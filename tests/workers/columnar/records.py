"""Messages as a spool holds them, and rows as tests write them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from types import EllipsisType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catalog.pg_lsn import LSN
from workers.columnar.column_reader import Changes, Layout, MappedColumn
from workers.columnar.frame import Frame, frame
from workers.proto import encode
from workers.proto.messages import (
    Begin,
    ColumnStatus,
    Commit,
    Delete,
    Insert,
    Message,
    TupleColumn,
    TupleData,
    Update,
)

Value = str | None | EllipsisType
"""A value's text, NULL, or ``...`` for an unchanged out-of-line value."""

Row = Sequence[Value]

TABLE = 0x4001


def record(payload: bytes) -> bytes:
    return struct.pack("<I", len(payload)) + payload


def spool(*payloads: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(b"".join(record(payload) for payload in payloads), np.uint8)


def transaction(messages: Iterable[Message], number: int = 1) -> list[bytes]:
    """Whole; its commit record lies at 100 × ``number`` and is 50 bytes long."""
    final = LSN(100 * number)
    whole = [Begin(final, 0, number), *messages, Commit(final, LSN(final + 50), 7)]
    return [encode.message(message) for message in whole]


def tuple_data(row: Row) -> TupleData:
    return tuple(
        TupleColumn(ColumnStatus.NULL)
        if value is None
        else TupleColumn(ColumnStatus.UNCHANGED)
        if isinstance(value, EllipsisType)
        else TupleColumn(ColumnStatus.TEXT, value.encode())
        for value in row
    )


def insert(*row: Value) -> Insert:
    return Insert(TABLE, tuple_data(row))


def update(new: Row, *, key: Row | None = None, old: Row | None = None) -> Update:
    if old is not None:
        return Update(TABLE, "O", tuple_data(old), tuple_data(new))
    if key is not None:
        return Update(TABLE, "K", tuple_data(key), tuple_data(new))
    return Update(TABLE, None, None, tuple_data(new))


def delete(*, key: Row | None = None, old: Row | None = None) -> Delete:
    if old is not None:
        return Delete(TABLE, "O", tuple_data(old))
    assert key is not None
    return Delete(TABLE, "K", tuple_data(key))


def framed(*messages: Message) -> Frame:
    """One transaction, framed."""
    buf = spool(*transaction(messages))
    return frame(buf, 0, len(buf))


def segment(*messages: Message) -> Changes:
    """One transaction's changes."""
    return framed(*messages).changes(slice(None))


def layout(
    *types: pa.DataType, key: tuple[int, ...] = (0,), null_unrepresentable: bool = False
) -> Layout:
    columns = tuple(MappedColumn(f"column {at}", at, type_) for at, type_ in enumerate(types))
    return Layout(len(types), key, columns, null_unrepresentable)


def rows(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for batch in batches:
        batch.validate(full=True)
        found += batch.to_pylist()
    return found
