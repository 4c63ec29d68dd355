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
    Delete,
    Insert,
    Message,
    Relation,
    RelationColumn,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    TupleColumn,
    Update,
)
from workers.stream.batch import Batch
from workers.stream.spool import Spool

CHANGES = (Insert, Update, Delete, Truncate)


def relation(
    relid: int, name: str, *columns: str, key: str = "id", identity: str = "d"
) -> Relation:
    """Under REPLICA IDENTITY FULL (``identity="f"``) every column is flagged as key."""
    full = identity == "f"
    cols = tuple(RelationColumn(full or column == key, column, 23, -1) for column in columns)
    return Relation(relid, "public", name, identity, cols)


def row(*values: str) -> tuple[TupleColumn, ...]:
    return tuple(TupleColumn(ColumnStatus.TEXT, value.encode()) for value in values)


def part(xid: int, *changes: Message, first: bool = False, sub: int = 0) -> list[bytes]:
    """A part of a transaction in progress, of its subtransaction ``sub`` if that is given."""
    inside = [encode.streamed(each, sub or xid) for each in changes]
    return [encode.message(StreamStart(xid, first)), *inside, encode.message(StreamStop())]


def commit(xid: int, at: int) -> bytes:
    """The commit of a transaction in progress; the commit record is a byte before ``at``."""
    return encode.message(StreamCommit(xid, LSN(at - 1), LSN(at), 0))


def batch(*transactions: Sequence[Message], after: int = 0) -> Batch:
    """Transactions that end 100, 200, … after ``after``; commit records are a byte before."""
    data = bytearray()
    commits = []
    for number, messages in enumerate(transactions, start=1):
        end = after + number * 100
        whole = [Begin(LSN(end - 1), 0, number), *messages, Commit(LSN(end - 1), LSN(end), 0)]
        for each in whole:
            payload = encode.message(each)
            data += struct.pack("<I", len(payload)) + payload
        changes = sum(isinstance(each, CHANGES) for each in messages)
        commits.append([len(data), end - 1, end, 0, changes])
    buf = np.frombuffer(bytes(data), dtype=np.uint8)
    return Batch(buf, 0, len(buf), np.array(commits, dtype=np.int64))


def put(spool: Spool, received: Batch) -> None:
    """Write a batch into the spool as the receive thread does."""
    size = received.end - received.start
    buf, position = spool.writable()
    while len(buf) - position < size:
        spool.grow(size)
        buf, position = spool.writable()
    buf[position : position + size] = received.buf[received.start : received.end]
    commits = received.commits.copy()
    commits[:, 0] += position - received.start
    spool.wrote(position + size, commits)
