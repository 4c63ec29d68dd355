"""Whole transactions as the spool hands them over, written message by message."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from catalog.pg_lsn import LSN
from workers.proto import encode
from workers.proto.messages import (
    Begin,
    ColumnStatus,
    Commit,
    Message,
    Relation,
    RelationColumn,
    TupleColumn,
)
from workers.spool import Batch


def relation(relid: int, name: str, *columns: str, key: str = "id") -> Relation:
    cols = tuple(RelationColumn(column == key, column, 23, -1) for column in columns)
    return Relation(relid, "public", name, "d", cols)


def row(*values: str) -> tuple[TupleColumn, ...]:
    return tuple(TupleColumn(ColumnStatus.TEXT, value.encode()) for value in values)


def batch(*transactions: Sequence[Message]) -> Batch:
    """Transactions that end at 100, 200, …; each commit record is one byte before its end."""
    data = bytearray()
    commits = []
    for number, messages in enumerate(transactions, start=1):
        end = number * 100
        whole = [Begin(LSN(end - 1), 0, number), *messages, Commit(LSN(end - 1), LSN(end), 0)]
        for each in whole:
            payload = encode.message(each)
            data += struct.pack("<I", len(payload)) + payload
        commits.append([len(data), end - 1, end, 0, len(messages)])
    buf = np.frombuffer(bytes(data), dtype=np.uint8)
    return Batch(buf, 0, len(buf), np.array(commits, dtype=np.int64))
