"""Bytes in, messages out: PostgreSQL's ``logicalrep_read_…``. No socket, no clock, no state.

On the hot path row messages never come here (``workers.columnar`` walks them many at a time); the
control messages between them do. The reader of a row message is what the columnar path is tested
against. ``encode.py`` holds the inverse of every reader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from catalog.errcodes import ProtocolViolation
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from workers.proto.buffer import MessageReader
from workers.proto.messages import (
    Begin,
    ColumnStatus,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    LogicalRepMsgType,
    Message,
    Origin,
    PrimaryKeepalive,
    Relation,
    RelationColumn,
    Truncate,
    TupleColumn,
    TupleData,
    Type,
    Update,
    XLogData,
)

_REPLIDENTS: Final = frozenset("dnfi")
_TRUNCATE_CASCADE: Final = 1
_TRUNCATE_RESTART_SEQS: Final = 2


def copy_data(data: bytes) -> XLogData | PrimaryKeepalive | None:
    """One CopyData of a replication stream; None for a kind we do not know, as PostgreSQL does."""
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
    """One logical replication message; anything else is 08P01."""
    reader = MessageReader(data)
    kind = reader.byte("message type")
    read = READERS.get(kind)
    if read is None:
        shown = chr(kind) if 32 < kind < 127 else "???"
        raise ProtocolViolation(f'invalid logical replication message type "{shown} ({kind})"')
    reader.what = LogicalRepMsgType(kind).name.lower()
    decoded = read(reader)
    reader.end()
    return decoded


def read_begin(reader: MessageReader) -> Begin:
    """``logicalrep_read_begin``."""
    final_lsn = LSN(reader.uint64("final_lsn"))
    if final_lsn == InvalidXLogRecPtr:
        raise ProtocolViolation("final_lsn not set in begin message")
    return Begin(final_lsn, reader.int64("commit time"), reader.uint32("xid"))


def read_commit(reader: MessageReader) -> Commit:
    """``logicalrep_read_commit``."""
    reader.flags("flags")
    commit_lsn, end_lsn = LSN(reader.uint64("commit_lsn")), LSN(reader.uint64("end_lsn"))
    if InvalidXLogRecPtr in (commit_lsn, end_lsn):
        raise ProtocolViolation("commit_lsn or end_lsn not set in commit message")
    return Commit(commit_lsn, end_lsn, reader.int64("commit time"))


def read_origin(reader: MessageReader) -> Origin:
    """``logicalrep_read_origin``."""
    return Origin(LSN(reader.uint64("origin LSN")), reader.string("origin name"))


def read_rel(reader: MessageReader) -> Relation:
    """``logicalrep_read_rel``; an empty schema name means pg_catalog."""
    relid = reader.uint32("relation oid")
    nspname = reader.string("schema name") or "pg_catalog"
    relname = reader.string("relation name")
    replident = chr(reader.byte("replica identity"))
    if replident not in _REPLIDENTS:
        raise ProtocolViolation("unrecognized replica identity in relation message")
    count = reader.int16("column count")
    if count < 0:
        raise ProtocolViolation("negative column count in relation message")
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
    count = reader.int16("column count")
    if count < 0:
        raise ProtocolViolation("negative column count in tuple")
    return tuple(_read_column(reader) for _ in range(count))


def _read_column(reader: MessageReader) -> TupleColumn:
    raw = reader.byte("column status")
    try:
        status = ColumnStatus(raw)
    except ValueError:
        raise ProtocolViolation(
            f'unrecognized data representation type "{chr(raw) if 32 < raw < 127 else raw}"'
        ) from None
    if status in (ColumnStatus.NULL, ColumnStatus.UNCHANGED):
        return TupleColumn(status)
    length = reader.int32("value length")
    return TupleColumn(status, reader.bytes(length, "value"))


def read_insert(reader: MessageReader) -> Insert:
    """``logicalrep_read_insert``."""
    relid = reader.uint32("relation oid")
    if (action := reader.byte("action")) != ord("N"):
        raise ProtocolViolation(f"expected new tuple but got {action}")
    return Insert(relid, read_tuple(reader))


def read_update(reader: MessageReader) -> Update:
    """``logicalrep_read_update``."""
    relid = reader.uint32("relation oid")
    action = reader.byte("action")
    old_kind: str | None = None
    old: TupleData | None = None
    if action in (ord("K"), ord("O")):
        old_kind = chr(action)
        old = read_tuple(reader)
        action = reader.byte("action")
    if action != ord("N"):
        raise ProtocolViolation(f"expected action 'N', 'O' or 'K', got {action}")
    return Update(relid, old_kind, old, read_tuple(reader))


def read_delete(reader: MessageReader) -> Delete:
    """``logicalrep_read_delete``."""
    relid = reader.uint32("relation oid")
    action = reader.byte("action")
    if action not in (ord("K"), ord("O")):
        raise ProtocolViolation(f"expected action 'O' or 'K', got {action}")
    return Delete(relid, chr(action), read_tuple(reader))


def read_truncate(reader: MessageReader) -> Truncate:
    """``logicalrep_read_truncate``."""
    count = reader.int32("relation count")
    if count < 0:
        raise ProtocolViolation("negative relation count in truncate message")
    flags = reader.byte("flags")
    relids = tuple(reader.uint32("relation oid") for _ in range(count))
    return Truncate(bool(flags & _TRUNCATE_CASCADE), bool(flags & _TRUNCATE_RESTART_SEQS), relids)


def read_message(reader: MessageReader) -> LogicalMessage:
    """A ``pg_logical_emit_message``."""
    transactional = bool(reader.byte("flags") & 1)
    lsn = LSN(reader.uint64("LSN"))
    prefix = reader.string("prefix")
    length = reader.int32("content length")
    return LogicalMessage(transactional, lsn, prefix, reader.bytes(length, "content"))


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
}
