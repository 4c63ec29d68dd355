"""Messages in, bytes out: the inverse of every reader in ``decode.py``.

The worker sends only the standby status update. The other functions are PostgreSQL's
``logicalrep_write_…``; tests build a publisher from them.
"""

from __future__ import annotations

import struct
from typing import Final

from catalog.pg_lsn import LSN
from workers.proto.messages import (
    Begin,
    BeginPrepare,
    ColumnStatus,
    Commit,
    CommitPrepared,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Origin,
    Prepare,
    PrimaryKeepalive,
    Relation,
    RollbackPrepared,
    StreamAbort,
    StreamCommit,
    StreamPrepare,
    StreamStart,
    StreamStop,
    Truncate,
    TupleData,
    Type,
    Update,
    XLogData,
)

_STATUS_UPDATE: Final = struct.Struct("!cQQQqB")


def standby_status_update(
    write: LSN, flush: LSN, apply: LSN, clock_us: int, reply_requested: bool
) -> bytes:
    """The ``r`` message; ``clock_us`` is in microseconds since 2000-01-01 UTC."""
    return _STATUS_UPDATE.pack(b"r", write, flush, apply, clock_us, reply_requested)


def copy_data(data: XLogData | PrimaryKeepalive) -> bytes:
    """A ``w`` or a ``k`` message."""
    if isinstance(data, XLogData):
        head = struct.pack("!cQQq", b"w", data.start_lsn, data.end_lsn, data.send_time)
        return head + data.data
    return struct.pack("!cQqB", b"k", data.end_lsn, data.send_time, data.reply_requested)


def _string(text: str) -> bytes:
    return text.encode() + b"\0"


def _tuple(columns: TupleData) -> bytes:
    parts = [struct.pack("!h", len(columns))]
    for column in columns:
        parts.append(bytes([column.status]))
        if column.status in (ColumnStatus.TEXT, ColumnStatus.BINARY):
            value = column.value or b""
            parts.append(struct.pack("!i", len(value)) + value)
    return b"".join(parts)


def _schema(nspname: str) -> bytes:
    return _string("" if nspname == "pg_catalog" else nspname)


def message(data: Message) -> bytes:
    """One logical replication message."""
    match data:
        case Begin(final_lsn, committime, xid):
            return struct.pack("!cQqI", b"B", final_lsn, committime, xid)
        case Commit(commit_lsn, end_lsn, committime):
            return struct.pack("!cBQQq", b"C", 0, commit_lsn, end_lsn, committime)
        case BeginPrepare() | CommitPrepared() | RollbackPrepared():
            return _two_phase(data)
        case StreamStart() | StreamStop() | StreamCommit() | StreamAbort():
            return _stream(data)
        case Origin(origin_lsn, name):
            return struct.pack("!cQ", b"O", origin_lsn) + _string(name)
        case Relation():
            return _relation(data)
        case Type(typid, nspname, typname):
            return struct.pack("!cI", b"Y", typid) + _schema(nspname) + _string(typname)
        case Insert(relid, new):
            return struct.pack("!cIc", b"I", relid, b"N") + _tuple(new)
        case Update(relid, old_kind, old, new):
            before = b"" if old_kind is None else old_kind.encode() + _tuple(old or ())
            return struct.pack("!cI", b"U", relid) + before + b"N" + _tuple(new)
        case Delete(relid, old_kind, old):
            return struct.pack("!cIc", b"D", relid, old_kind.encode()) + _tuple(old)
        case Truncate(cascade, restart_seqs, relids):
            flags = cascade | restart_seqs << 1
            return struct.pack(f"!ciB{len(relids)}I", b"T", len(relids), flags, *relids)
        case LogicalMessage(transactional, lsn, prefix, content):
            head = struct.pack("!cBQ", b"M", transactional, lsn) + _string(prefix)
            return head + struct.pack("!i", len(content)) + content


def streamed(data: Message, xid: int) -> bytes:
    """One message of a part of a transaction in progress; ``xid`` is the subtransaction's."""
    plain = message(data)
    return plain if isinstance(data, Origin) else plain[:1] + struct.pack("!I", xid) + plain[1:]


def _stream(data: StreamStart | StreamStop | StreamCommit | StreamAbort) -> bytes:
    match data:
        case StreamStart(xid, first_segment):
            return struct.pack("!cIB", b"S", xid, first_segment)
        case StreamStop():
            return b"E"
        case StreamCommit(xid, commit_lsn, end_lsn, committime):
            return struct.pack("!cIBQQq", b"c", xid, 0, commit_lsn, end_lsn, committime)
        case StreamAbort(xid, subxid):
            return struct.pack("!cII", b"A", xid, subxid)


def _two_phase(data: BeginPrepare | CommitPrepared | RollbackPrepared) -> bytes:
    """Prepare and Stream Prepare are Begin Prepare with a byte of flags."""
    match data:
        case CommitPrepared(commit_lsn, end_lsn, time, xid, gid):
            return struct.pack("!cBQQqI", b"K", 0, commit_lsn, end_lsn, time, xid) + _string(gid)
        case RollbackPrepared(prepare_end, rollback_end, prepared, rolled_back, xid, gid):
            times = struct.pack("!qqI", prepared, rolled_back, xid)
            return struct.pack("!cBQQ", b"r", 0, prepare_end, rollback_end) + times + _string(gid)
    kind = {Prepare: b"P\0", StreamPrepare: b"p\0"}.get(type(data), b"b")
    body = struct.pack("!QQqI", data.prepare_lsn, data.end_lsn, data.prepare_time, data.xid)
    return kind + body + _string(data.gid)


def _relation(relation: Relation) -> bytes:
    parts = [
        struct.pack("!cI", b"R", relation.relid),
        _schema(relation.nspname),
        _string(relation.relname),
        relation.replident.encode(),
        struct.pack("!h", len(relation.columns)),
    ]
    for column in relation.columns:
        parts.append(bytes([column.key]) + _string(column.name))
        parts.append(struct.pack("!Ii", column.typid, column.typmod))
    return b"".join(parts)
