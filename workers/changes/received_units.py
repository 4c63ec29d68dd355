"""The units of a batch: ordinary transactions, and the three messages of two-phase commit. Pure.

A unit is what the drain kernel notes as the end of a transaction. The first byte of the first
record tells the kind of a unit::

    B … C    a transaction
    b … P    a prepared transaction: its changes, which are not to be applied yet
    K        COMMIT PREPARED
    r        ROLLBACK PREPARED

Some publishers (18.4) send a PREPARE without changes as ``P`` alone. The changes between ``b`` and
``P`` are records as in any transaction. With a Begin and a Commit
around them, in place of ``b`` and ``P``, the unit is a transaction.

A Relation message comes once on a connection, perhaps inside a unit that is applied much later, or
long before. So a walk over the records moves a relation map, and notes the used relations.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from catalog.errcodes import ProtocolViolation
from catalog.pg_lsn import LSN
from workers.changes.relation_map import LogicalRepRelMap
from workers.columnar.frame import OpenTransaction
from workers.columnar.frame_slices import frame_slices
from workers.proto import encode
from workers.proto.decode import message
from workers.proto.messages import (
    Begin,
    BeginPrepare,
    Commit,
    CommitPrepared,
    Message,
    Prepare,
    Relation,
    RollbackPrepared,
    Truncate,
)
from workers.stream.batch import Batch, Bytes, Ints

_BEGIN = ord("B")
_HEADER = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared transaction of a batch; its changes are ``buf[start:end]``."""

    begin: BeginPrepare
    buf: Bytes
    start: int
    end: int
    changes: int


@dataclass(slots=True)
class Used:
    """The relations that changes use: as they are before the changes, and as they are announced."""

    before: dict[int, Relation] = field(default_factory=dict)
    announced: list[Relation] = field(default_factory=list)
    relids: set[int] = field(default_factory=set)


Unit = Batch | Prepared | CommitPrepared | RollbackPrepared
"""A ``Batch`` stands for as many ordinary transactions as follow each other."""


def has_two_phase(batch: Batch) -> bool:
    """Has the batch anything but ordinary transactions?"""
    return bool((_first_bytes(batch) != _BEGIN).any())


def units(batch: Batch) -> Iterator[Unit]:
    """The units of a batch, in order."""
    first_bytes = _first_bytes(batch)
    edges = np.flatnonzero(np.diff(first_bytes != _BEGIN)) + 1
    bounds = [0, *edges.tolist(), batch.ntxns]
    for first, last in pairwise(bounds):
        if first_bytes[first] == _BEGIN:
            yield batch.part(first, last)
        else:
            for txn in range(first, last):
                yield _two_phase(batch.part(txn, txn + 1))


def _first_bytes(batch: Batch) -> Bytes:
    starts: Ints = np.concatenate([[batch.start], batch.commits[:-1, 0]])
    first: Bytes = batch.buf[starts + _HEADER.size]
    return first


def _two_phase(unit: Batch) -> Prepared | CommitPrepared | RollbackPrepared:
    first, start = _message_at(unit.buf, unit.start)
    if isinstance(first, CommitPrepared | RollbackPrepared):
        return first
    if isinstance(first, Prepare):
        return Prepared(first, unit.buf, unit.end, unit.end, 0)
    if not isinstance(first, BeginPrepare):
        raise ProtocolViolation(
            "logical replication message sent out of order",
            detail="A begin message or a begin prepare message was expected first.",
        )
    end = unit.end - (start - unit.start) - 1  # Prepare is Begin Prepare with a byte of flags
    last, _ = _message_at(unit.buf, end)
    if not isinstance(last, Prepare) or last.prepare_lsn != first.prepare_lsn:
        raise ProtocolViolation(
            "incorrect prepare LSN in prepare message",
            detail="At the end of a prepared transaction the prepare message of its begin prepare "
            f"message was expected, with prepare LSN {first.prepare_lsn}.",
        )
    return Prepared(first, unit.buf, start, end, unit.nchanges)


def _message_at(buf: Bytes, start: int) -> tuple[Message, int]:
    """The message of the record at ``start``, and where the record ends."""
    (length,) = _HEADER.unpack(buf[start : start + _HEADER.size].tobytes())
    end = start + _HEADER.size + length
    return message(buf[start + _HEADER.size : end].tobytes()), end


def walk(part: Batch, relmap: LogicalRepRelMap, most_bytes: int) -> None:
    """Move ``relmap`` to the end of ordinary transactions."""
    _walk(part, part.start, part.end, relmap, most_bytes, None)


def walk_prepared(batch: Batch, unit: Prepared, relmap: LogicalRepRelMap, most_bytes: int) -> Used:
    """Move ``relmap`` to the end of a prepared transaction of the batch; what the changes use."""
    begin = unit.begin
    inside = np.array([begin.prepare_lsn, 0, begin.prepare_time, begin.xid, 0, 0, 0], np.int64)
    return _walk(batch, unit.start, unit.end, relmap, most_bytes, inside)


def _walk(
    batch: Batch,
    start: int,
    end: int,
    relmap: LogicalRepRelMap,
    most_bytes: int,
    inside: OpenTransaction | None,
) -> Used:
    used = Used()
    replaced: dict[int, Relation | None] = {}
    give_back = batch.give_pages_back if batch.mapping is not None else None
    for framed in frame_slices(batch.buf, start, end, most_bytes, give_back, inside):
        used.relids |= set(np.unique(framed.relid).tolist())
        for control in framed.control:
            at = control.offset
            decoded = message(batch.buf[at : at + control.length].tobytes())
            if isinstance(decoded, Relation):
                replaced.setdefault(decoded.relid, relmap.get(decoded.relid))
                if relmap.update(decoded):
                    used.announced.append(decoded)
                used.relids.add(decoded.relid)
            elif isinstance(decoded, Truncate):
                used.relids |= set(decoded.relids)
        del framed
    found = {relid: replaced.get(relid, relmap.get(relid)) for relid in used.relids}
    used.before = {relid: relation for relid, relation in found.items() if relation is not None}
    return used


def record(data: Message) -> bytes:
    """The spool record of a message."""
    return record_of(encode.message(data))


def record_of(payload: bytes) -> bytes:
    """The spool record of an encoded message."""
    return _HEADER.pack(len(payload)) + payload


def begin_record(final_lsn: LSN, commit_time: int, xid: int) -> bytes:
    """The first record of a transaction."""
    return record(Begin(final_lsn, commit_time, xid))


def commit_record(final_lsn: LSN, end_lsn: LSN, commit_time: int) -> bytes:
    """The last record of a transaction."""
    return record(Commit(final_lsn, end_lsn, commit_time))


def joined(parts: list[Batch]) -> Batch:
    """Several batches, in order, as one."""
    if len(parts) == 1:
        return parts[0]
    commits, at = [], 0
    for part in parts:
        rows = part.commits.copy()
        rows[:, 0] += at - part.start
        at += part.end - part.start
        commits.append(rows)
    buf = np.concatenate([part.buf[part.start : part.end] for part in parts])
    return Batch(buf, 0, len(buf), np.concatenate(commits))


def transaction(records: list[bytes | memoryview | Bytes], row: list[int]) -> Batch:
    """A batch of one transaction; ``row`` as in ``Batch.commits``, without the offset."""
    buf = np.concatenate([np.frombuffer(each, np.uint8) for each in records])
    return Batch(buf, 0, len(buf), np.array([[len(buf), *row]], np.int64))
