"""The logical replication messages as values, with the names and fields of PostgreSQL's structs.

Times are microseconds since 2000-01-01 UTC. Some messages have the LSN of a commit record's start
(``final_lsn``, ``commit_lsn``) and of the record's end (``end_lsn``); only the end is a position.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from catalog.pg_lsn import LSN

PG_EPOCH_US: Final = 946_684_800_000_000
"""2000-01-01 UTC in microseconds since 1970."""


class LogicalRepMsgType(IntEnum):
    """The byte a message begins with."""

    BEGIN = ord("B")
    COMMIT = ord("C")
    ORIGIN = ord("O")
    INSERT = ord("I")
    UPDATE = ord("U")
    DELETE = ord("D")
    TRUNCATE = ord("T")
    RELATION = ord("R")
    TYPE = ord("Y")
    MESSAGE = ord("M")
    BEGIN_PREPARE = ord("b")
    PREPARE = ord("P")
    COMMIT_PREPARED = ord("K")
    ROLLBACK_PREPARED = ord("r")
    STREAM_START = ord("S")
    STREAM_STOP = ord("E")
    STREAM_COMMIT = ord("c")
    STREAM_ABORT = ord("A")
    STREAM_PREPARE = ord("p")


class ColumnStatus(IntEnum):
    """The kind of value in a column of a tuple."""

    NULL = ord("n")
    UNCHANGED = ord("u")
    TEXT = ord("t")
    BINARY = ord("b")


@dataclass(frozen=True, slots=True)
class XLogData:
    """A ``w`` message; ``data`` is one logical replication message."""

    start_lsn: LSN
    end_lsn: LSN
    send_time: int
    data: bytes


@dataclass(frozen=True, slots=True)
class PrimaryKeepalive:
    """A ``k`` message."""

    end_lsn: LSN
    send_time: int
    reply_requested: bool


@dataclass(frozen=True, slots=True)
class Begin:
    """``LogicalRepBeginData``."""

    final_lsn: LSN
    committime: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """``LogicalRepCommitData``."""

    commit_lsn: LSN
    end_lsn: LSN
    committime: int


@dataclass(frozen=True, slots=True)
class BeginPrepare:
    """``LogicalRepPreparedTxnData`` of a Begin Prepare; ``gid`` is the publisher's name."""

    prepare_lsn: LSN
    end_lsn: LSN
    prepare_time: int
    xid: int
    gid: str


@dataclass(frozen=True, slots=True)
class Prepare(BeginPrepare):
    """``LogicalRepPreparedTxnData`` at the end of a prepared transaction."""


@dataclass(frozen=True, slots=True)
class StreamPrepare(BeginPrepare):
    """A Prepare of a transaction that was sent while it ran."""


@dataclass(frozen=True, slots=True)
class CommitPrepared:
    """``LogicalRepCommitPreparedTxnData``."""

    commit_lsn: LSN
    end_lsn: LSN
    commit_time: int
    xid: int
    gid: str


@dataclass(frozen=True, slots=True)
class RollbackPrepared:
    """``LogicalRepRollbackPreparedTxnData``: end and time of the PREPARE, and of the ROLLBACK."""

    prepare_end_lsn: LSN
    rollback_end_lsn: LSN
    prepare_time: int
    rollback_time: int
    xid: int
    gid: str


@dataclass(frozen=True, slots=True)
class StreamStart:
    """Messages of transaction ``xid``, which is in progress, follow up to the Stream Stop."""

    xid: int
    first_segment: bool


@dataclass(frozen=True, slots=True)
class StreamStop:
    """The end of what a Stream Start began."""


@dataclass(frozen=True, slots=True)
class StreamCommit:
    """``LogicalRepCommitData`` of a transaction that was sent while it ran."""

    xid: int
    commit_lsn: LSN
    end_lsn: LSN
    committime: int


@dataclass(frozen=True, slots=True)
class StreamAbort:
    """``LogicalRepStreamAbortData``; both ids are equal if the whole transaction is rolled back.

    A position and a time follow only where ``streaming = parallel`` was asked for, and it never is.
    """

    xid: int
    subxid: int


StreamControl = StreamStart | StreamStop | StreamCommit | StreamPrepare | StreamAbort
"""The messages around the parts of transactions in progress."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a transaction was first committed."""

    origin_lsn: LSN
    name: str


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A published column; ``key``: it is part of the replica identity."""

    key: bool
    name: str
    typid: int
    typmod: int


@dataclass(frozen=True, slots=True)
class Relation:
    """``LogicalRepRelation``; ``replident`` is d, n, f or i."""

    relid: int
    nspname: str
    relname: str
    replident: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class Type:
    """A user-defined type."""

    typid: int
    nspname: str
    typname: str


@dataclass(frozen=True, slots=True)
class TupleColumn:
    """A column's status, and the bytes of the value if the status has a value."""

    status: ColumnStatus
    value: bytes | None = None


TupleData = tuple[TupleColumn, ...]
"""``LogicalRepTupleData``."""


@dataclass(frozen=True, slots=True)
class Insert:
    """A new row."""

    relid: int
    new: TupleData


@dataclass(frozen=True, slots=True)
class Update:
    """A changed row; ``old_kind`` is K (key), O (whole row) or None."""

    relid: int
    old_kind: str | None
    old: TupleData | None
    new: TupleData


@dataclass(frozen=True, slots=True)
class Delete:
    """A removed row."""

    relid: int
    old_kind: str
    old: TupleData


@dataclass(frozen=True, slots=True)
class Truncate:
    """Emptied tables."""

    cascade: bool
    restart_seqs: bool
    relids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """``pg_logical_emit_message``; the apply worker ignores the message."""

    transactional: bool
    lsn: LSN
    prefix: str
    content: bytes


Message = (
    Begin
    | Commit
    | BeginPrepare
    | Prepare
    | StreamStart
    | StreamStop
    | StreamCommit
    | StreamAbort
    | StreamPrepare
    | CommitPrepared
    | RollbackPrepared
    | Origin
    | Relation
    | Type
    | Insert
    | Update
    | Delete
    | Truncate
    | LogicalMessage
)
