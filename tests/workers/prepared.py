"""Two-phase units as the spool hands them over, beside ordinary transactions.

A unit ends at ``end``; its last record starts a byte before. A prepared transaction with number
``xid`` has the publisher's name ``gXID``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from catalog.pg_lsn import LSN
from tests.workers.transactions import CHANGES
from workers.proto import encode
from workers.proto.messages import (
    Begin,
    BeginPrepare,
    Commit,
    CommitPrepared,
    Message,
    Prepare,
    RollbackPrepared,
)
from workers.stream.batch import Batch
from workers.stream.prepared_groups import PreparedXact
from workers.stream.prepared_xacts import PreparedXacts


@dataclass(frozen=True, slots=True)
class Unit:
    """The records of a unit, and its position."""

    messages: list[Message]
    final_lsn: int
    end_lsn: int


def plain(end: int, *messages: Message) -> Unit:
    """An ordinary transaction."""
    whole = [Begin(LSN(end - 1), 0, end), *messages, Commit(LSN(end - 1), LSN(end), 0)]
    return Unit(whole, end - 1, end)


def prepare(end: int, xid: int, *messages: Message) -> Unit:
    """PREPARE TRANSACTION."""
    data = (LSN(end - 1), LSN(end), end, xid, f"g{xid}")
    return Unit([BeginPrepare(*data), *messages, Prepare(*data)], end - 1, end)


def commit(end: int, xid: int, gid: str | None = None) -> Unit:
    """COMMIT PREPARED."""
    message = CommitPrepared(LSN(end - 1), LSN(end), 0, xid, gid or f"g{xid}")
    return Unit([message], end - 1, end)


def rollback(end: int, xid: int, prepared: int) -> Unit:
    """ROLLBACK PREPARED of what was prepared at ``prepared``."""
    message = RollbackPrepared(LSN(prepared), LSN(end), prepared, 0, xid, f"g{xid}")
    return Unit([message], prepared, end)


def received(*units: Unit) -> Batch:
    """The batch of the units."""
    data, commits = bytearray(), []
    for unit in units:
        for each in unit.messages:
            payload = encode.message(each)
            data += struct.pack("<I", len(payload)) + payload
        changes = sum(isinstance(each, CHANGES) for each in unit.messages)
        commits.append([len(data), unit.final_lsn, unit.end_lsn, 0, changes])
    buf = np.frombuffer(bytes(data), dtype=np.uint8)
    return Batch(buf, 0, len(buf), np.array(commits, dtype=np.int64))


def keep(xacts: PreparedXacts, *several: PreparedXact, records: tuple[bytes, ...] = ()) -> None:
    """Prepare, durably."""
    for xact in several:
        xacts.prepare(xact, sum(map(len, records)), records)
    xacts.make_durable()
