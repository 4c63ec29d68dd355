"""Bytes in, messages out: PostgreSQL's ``logicalrep_read_…``. No socket, no clock, no state.

On the hot path ``workers.columnar`` walks over many row messages at a time. This module reads the
control messages between the rows, and every message that the columnar path refuses: the error then
names the expected field and the byte offset. Tests compare the columnar path with the readers of
row messages. ``encode.py`` holds the inverse of every reader.

The errors use PostgreSQL's words. An error about bytes that may belong to a row leaves the bytes
out.

Trace: ``42 00000000000003E8 0002A2D8566C6000 000002F1`` is ``Begin(final_lsn=0/3E8,
committime=742000000000000, xid=753)``. Without the last byte the error is "insufficient data left
in message", with the DETAIL that the xid was expected at byte 17 and 3 bytes are left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from catalog.errcodes import ProtocolViolation
from catalog.pg_lsn import LSN
from workers.proto.buffer import MessageReader
from workers.proto.messages import (
    Begin,
    BeginPrepare,
    ColumnStatus,
    Commit,
    CommitPrepared,
    Delete,
    Insert,
    LogicalMessage,
    LogicalRepMsgType,
    Message,
    Origin,
    Prepare,
    PrimaryKeepalive,
    Relation,
    RelationColumn,
    RollbackPrepared,
    StreamAbort,
    StreamCommit,
    StreamPrepare,
    StreamStart,
    StreamStop,
    Truncate,
    TupleColumn,
    TupleData,
    Type,
    Update,
    XLogData,
)

_REPLIDENTS: Final = "dnfi"
_STATUSES: Final = "".join(map(chr, ColumnStatus))
_TRUNCATE_CASCADE: Final = 1
_TRUNCATE_RESTART_SEQS: Final = 2


def copy_data(data: bytes) -> XLogData | PrimaryKeepalive | None:
    """Read a CopyData message of a replication stream; None for an unknown kind, as PostgreSQL."""
    reader = MessageReader(data, "replication message")
    kind = reader.byte("type")
    if kind == ord("w"):
        start, end = LSN(reader.uint64("start LSN")), LSN(reader.uint64("end LSN"))
        return XLogData(start, end, reader.int64("send time"), data[25:])
    if kind == ord("k"):
        end = LSN(reader.uint64("end LSN"))
        keepalive = PrimaryKeepalive(end, reader.int64("send time"), bool(reader.byte("reply")))
        reader.end()
        return keepalive
    return None


def message(data: bytes) -> Message:
    """Read a logical replication message; raise 08P01 for all further bytes."""
    reader = MessageReader(data)
    kind = reader.byte("message type")
    read = READERS.get(kind)
    if read is None:
        shown = chr(kind) if 32 < kind < 127 else "???"
        raise ProtocolViolation(
            f'invalid logical replication message type "{shown} ({kind})"',
            detail="At byte 0 of the message the message type was expected (one of "
            f'"{"".join(map(chr, READERS))}").',
        )
    name = LogicalRepMsgType(kind).name.lower().replace("_", " ")
    reader.what = "logical message" if name == "message" else f"{name} message"
    decoded = read(reader)
    reader.end()
    return decoded


def streamed(data: bytes) -> tuple[int | None, Message]:
    """Read a message of a part of a transaction in progress: the id of the subtransaction, and what
    an ordinary transaction would have.

    An origin has no id. Other messages than changes and their descriptions are out of order.
    """
    reader = MessageReader(data)
    kind = reader.byte("message type")
    if kind not in _STREAMED:
        message(data)
        raise ProtocolViolation(
            "logical replication message sent out of order",
            detail=f'Between STREAM START and STREAM STOP a message of one of the types "'
            f'{"".join(map(chr, _STREAMED))}" was expected.',
        )
    reader.what = f"streamed {LogicalRepMsgType(kind).name.lower()} message"
    xid = None if kind == LogicalRepMsgType.ORIGIN else reader.xid("xid")
    decoded = READERS[kind](reader)
    reader.end()
    return xid, decoded


def read_begin(reader: MessageReader) -> Begin:
    """``logicalrep_read_begin``."""
    final_lsn = reader.lsn("final_lsn")
    return Begin(final_lsn, reader.int64("commit time"), reader.uint32("xid"))


def read_commit(reader: MessageReader) -> Commit:
    """``logicalrep_read_commit``."""
    reader.flags()
    commit_lsn, end_lsn = reader.lsn("commit_lsn"), reader.lsn("end_lsn")
    return Commit(commit_lsn, end_lsn, reader.int64("commit time"))


def read_begin_prepare(reader: MessageReader) -> BeginPrepare:
    """``logicalrep_read_begin_prepare``."""
    return BeginPrepare(*_read_prepared(reader))


def read_prepare(reader: MessageReader) -> Prepare:
    """``logicalrep_read_prepare``."""
    reader.flags()
    return Prepare(*_read_prepared(reader))


def read_stream_prepare(reader: MessageReader) -> StreamPrepare:
    """``logicalrep_read_stream_prepare``."""
    reader.flags()
    return StreamPrepare(*_read_prepared(reader))


def _read_prepared(reader: MessageReader) -> tuple[LSN, LSN, int, int, str]:
    prepare_lsn, end_lsn = reader.lsn("prepare_lsn"), reader.lsn("end_lsn")
    time, xid = reader.int64("prepare time"), reader.uint32("xid")
    return prepare_lsn, end_lsn, time, xid, reader.string("gid")


def read_commit_prepared(reader: MessageReader) -> CommitPrepared:
    """``logicalrep_read_commit_prepared``."""
    reader.flags()
    commit_lsn, end_lsn = reader.lsn("commit_lsn"), reader.lsn("end_lsn")
    time, xid = reader.int64("commit time"), reader.uint32("xid")
    return CommitPrepared(commit_lsn, end_lsn, time, xid, reader.string("gid"))


def read_rollback_prepared(reader: MessageReader) -> RollbackPrepared:
    """``logicalrep_read_rollback_prepared``."""
    reader.flags()
    prepare_end, rollback_end = reader.lsn("prepare_end_lsn"), reader.lsn("rollback_end_lsn")
    prepared, rolled_back = reader.int64("prepare time"), reader.int64("rollback time")
    xid, gid = reader.uint32("xid"), reader.string("gid")
    return RollbackPrepared(prepare_end, rollback_end, prepared, rolled_back, xid, gid)


def read_stream_start(reader: MessageReader) -> StreamStart:
    """``logicalrep_read_stream_start``."""
    return StreamStart(reader.xid("xid"), reader.byte("first segment flag") == 1)


def read_stream_stop(_reader: MessageReader) -> StreamStop:
    """Nothing follows the type."""
    return StreamStop()


def read_stream_commit(reader: MessageReader) -> StreamCommit:
    """``logicalrep_read_stream_commit``."""
    xid = reader.xid("xid")
    reader.flags()
    commit_lsn, end_lsn = reader.lsn("commit_lsn"), reader.lsn("end_lsn")
    return StreamCommit(xid, commit_lsn, end_lsn, reader.int64("commit time"))


def read_stream_abort(reader: MessageReader) -> StreamAbort:
    """``logicalrep_read_stream_abort``."""
    return StreamAbort(reader.xid("xid"), reader.xid("xid of the subtransaction"))


def read_origin(reader: MessageReader) -> Origin:
    """``logicalrep_read_origin``."""
    return Origin(LSN(reader.uint64("origin LSN")), reader.string("origin name"))


def read_rel(reader: MessageReader) -> Relation:
    """``logicalrep_read_rel``; an empty schema name means pg_catalog."""
    relid = reader.uint32("relation oid")
    nspname = reader.string("schema name") or "pg_catalog"
    relname = reader.string("relation name")
    replident = reader.one_of(
        _REPLIDENTS, "replica identity", "unrecognized replica identity in relation message"
    )
    count = reader.count(2, "column count")
    columns = tuple(_read_attribute(reader) for _ in range(count))
    return Relation(relid, nspname, relname, replident, columns)


def _read_attribute(reader: MessageReader) -> RelationColumn:
    flags = reader.byte("column flags")
    return RelationColumn(
        key=bool(flags & 1),
        name=reader.string("column name"),
        typid=reader.uint32("column type"),
        typmod=reader.int32("type modifier"),
    )


def read_typ(reader: MessageReader) -> Type:
    """``logicalrep_read_typ``."""
    typid = reader.uint32("type oid")
    nspname = reader.string("schema name") or "pg_catalog"
    return Type(typid, nspname, reader.string("type name"))


def read_tuple(reader: MessageReader) -> TupleData:
    """``logicalrep_read_tuple``."""
    count = reader.count(2, "column count")
    return tuple(_read_column(reader) for _ in range(count))


def _read_column(reader: MessageReader) -> TupleColumn:
    kind = reader.one_of(_STATUSES, "kind of value", "unrecognized data representation type")
    status = ColumnStatus(ord(kind))
    if status in (ColumnStatus.NULL, ColumnStatus.UNCHANGED):
        return TupleColumn(status)
    return TupleColumn(status, reader.bytes("a value"))


def read_insert(reader: MessageReader) -> Insert:
    """``logicalrep_read_insert``."""
    relid = reader.uint32("relation oid")
    reader.one_of("N", "action", "expected new tuple")
    return Insert(relid, read_tuple(reader))


def read_update(reader: MessageReader) -> Update:
    """``logicalrep_read_update``."""
    relid = reader.uint32("relation oid")
    action = reader.one_of("NOK", "action", "expected action 'N', 'O' or 'K'")
    if action == "N":
        return Update(relid, None, None, read_tuple(reader))
    old = read_tuple(reader)
    reader.one_of("N", "action", "expected action 'N'")
    return Update(relid, action, old, read_tuple(reader))


def read_delete(reader: MessageReader) -> Delete:
    """``logicalrep_read_delete``."""
    relid = reader.uint32("relation oid")
    action = reader.one_of("OK", "action", "expected action 'O' or 'K'")
    return Delete(relid, action, read_tuple(reader))


def read_truncate(reader: MessageReader) -> Truncate:
    """``logicalrep_read_truncate``."""
    count = reader.count(4, "relation count")
    flags = reader.byte("flags")
    relids = tuple(reader.uint32("relation oid") for _ in range(count))
    return Truncate(bool(flags & _TRUNCATE_CASCADE), bool(flags & _TRUNCATE_RESTART_SEQS), relids)


def read_message(reader: MessageReader) -> LogicalMessage:
    """A ``pg_logical_emit_message``."""
    transactional = bool(reader.byte("flags") & 1)
    lsn = LSN(reader.uint64("LSN"))
    prefix = reader.string("prefix")
    return LogicalMessage(transactional, lsn, prefix, reader.bytes("the content"))


READERS: Final[Mapping[int, Callable[[MessageReader], Message]]] = {
    LogicalRepMsgType.BEGIN: read_begin,
    LogicalRepMsgType.COMMIT: read_commit,
    LogicalRepMsgType.ORIGIN: read_origin,
    LogicalRepMsgType.RELATION: read_rel,
    LogicalRepMsgType.TYPE: read_typ,
    LogicalRepMsgType.INSERT: read_insert,
    LogicalRepMsgType.UPDATE: read_update,
    LogicalRepMsgType.DELETE: read_delete,
    LogicalRepMsgType.TRUNCATE: read_truncate,
    LogicalRepMsgType.MESSAGE: read_message,
    LogicalRepMsgType.BEGIN_PREPARE: read_begin_prepare,
    LogicalRepMsgType.PREPARE: read_prepare,
    LogicalRepMsgType.COMMIT_PREPARED: read_commit_prepared,
    LogicalRepMsgType.ROLLBACK_PREPARED: read_rollback_prepared,
    LogicalRepMsgType.STREAM_START: read_stream_start,
    LogicalRepMsgType.STREAM_STOP: read_stream_stop,
    LogicalRepMsgType.STREAM_COMMIT: read_stream_commit,
    LogicalRepMsgType.STREAM_ABORT: read_stream_abort,
    LogicalRepMsgType.STREAM_PREPARE: read_stream_prepare,
}
_STREAMED: Final = tuple(b"IUDTRYMO")
