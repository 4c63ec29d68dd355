"""Every message of version 1 of the protocol, and those of prepared transactions.

Each stands as a value and as the bytes that PostgreSQL sends.
The bytes are put together by hand from the manual's field lists, not by our encoder.
"""

from __future__ import annotations

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
    RelationColumn,
    RollbackPrepared,
    StreamAbort,
    StreamCommit,
    StreamPrepare,
    StreamStart,
    StreamStop,
    Truncate,
    TupleColumn,
    Type,
    Update,
    XLogData,
)

NULL = TupleColumn(ColumnStatus.NULL)
UNCHANGED = TupleColumn(ColumnStatus.UNCHANGED)


def text(value: bytes) -> TupleColumn:
    return TupleColumn(ColumnStatus.TEXT, value)


def binary(value: bytes) -> TupleColumn:
    return TupleColumn(ColumnStatus.BINARY, value)


_LSN = b"\x00\x00\x00\x01\x02\x03\x04\x05"
_END = b"\x00\x00\x00\x01\x02\x03\x04\x35"
_TIME = b"\x00\x02\xd5\x0a\x8b\x10\x20\x30"
_TIME_VALUE = 0x0002D50A8B102030
_OID = b"\x00\x00\x40\x01"
_PREPARED = _LSN + _END + _TIME + b"\x00\x00\x02\xe3" + "Größe".encode() + b"\0"

CASES: Final[list[tuple[str, Message, bytes]]] = [
    (
        "begin",
        Begin(LSN.parse("1/2030405"), _TIME_VALUE, 739),
        b"B" + _LSN + _TIME + b"\x00\x00\x02\xe3",
    ),
    (
        "commit",
        Commit(LSN.parse("1/2030405"), LSN.parse("1/2030435"), _TIME_VALUE),
        b"C\x00" + _LSN + _END + _TIME,
    ),
    (
        "begin prepare",
        BeginPrepare(LSN.parse("1/2030405"), LSN.parse("1/2030435"), _TIME_VALUE, 739, "Größe"),
        b"b" + _PREPARED,
    ),
    (
        "prepare",
        Prepare(LSN.parse("1/2030405"), LSN.parse("1/2030435"), _TIME_VALUE, 739, "Größe"),
        b"P\x00" + _PREPARED,
    ),
    (
        "stream prepare",
        StreamPrepare(LSN.parse("1/2030405"), LSN.parse("1/2030435"), _TIME_VALUE, 739, "Größe"),
        b"p\x00" + _PREPARED,
    ),
    (
        "commit prepared of an empty gid",
        CommitPrepared(LSN.parse("1/2030405"), LSN.parse("1/2030435"), _TIME_VALUE, 739, ""),
        b"K\x00" + _LSN + _END + _TIME + b"\x00\x00\x02\xe3\0",
    ),
    (
        "rollback prepared",
        RollbackPrepared(
            LSN.parse("1/2030405"), LSN.parse("1/2030435"), _TIME_VALUE, _TIME_VALUE + 1, 739, "g"
        ),
        b"r\x00" + _LSN + _END + _TIME + _TIME[:-1] + b"\x31" + b"\x00\x00\x02\xe3g\0",
    ),
    ("stream start", StreamStart(739, True), b"S\x00\x00\x02\xe3\x01"),
    ("stream start of a later part", StreamStart(739, False), b"S\x00\x00\x02\xe3\x00"),
    ("stream stop", StreamStop(), b"E"),
    (
        "stream commit",
        StreamCommit(739, LSN.parse("1/2030405"), LSN.parse("1/2030435"), _TIME_VALUE),
        b"c\x00\x00\x02\xe3\x00" + _LSN + _END + _TIME,
    ),
    ("stream abort", StreamAbort(739, 740), b"A\x00\x00\x02\xe3\x00\x00\x02\xe4"),
    ("origin", Origin(LSN.parse("1/2030405"), "pg_16406"), b"O" + _LSN + b"pg_16406\0"),
    (
        "origin in a stream",
        Origin(LSN(0), ""),
        b"O" + bytes(8) + b"\0",
    ),
    (
        "relation",
        Relation(
            0x4001,
            "public",
            "Größe",
            "d",
            (
                RelationColumn(True, "id", 23, -1),
                RelationColumn(False, "n", 1700, (12 << 16 | 2) + 4),
            ),
        ),
        b"R"
        + _OID
        + b"public\0"
        + "Größe\0".encode()
        + b"d\x00\x02"
        + b"\x01id\0\x00\x00\x00\x17\xff\xff\xff\xff"
        + b"\x00n\0\x00\x00\x06\xa4\x00\x0c\x00\x06",
    ),
    (
        "relation without columns",
        Relation(0x4001, "pg_catalog", "t", "f", ()),
        b"R" + _OID + b"\0t\0f\x00\x00",
    ),
    ("type", Type(0x4001, "app", "mood"), b"Y" + _OID + b"app\0mood\0"),
    ("type in pg_catalog", Type(0x4001, "pg_catalog", "int4"), b"Y" + _OID + b"\0int4\0"),
    (
        "insert",
        Insert(0x4001, (text(b"7"), NULL, text(b""), binary(b"\x00\xff"))),
        b"I" + _OID + b"N\x00\x04t\x00\x00\x00\x017nt\x00\x00\x00\x00b\x00\x00\x00\x02\x00\xff",
    ),
    ("insert of nothing", Insert(0x4001, ()), b"I" + _OID + b"N\x00\x00"),
    (
        "update",
        Update(0x4001, None, None, (text(b"7"), UNCHANGED)),
        b"U" + _OID + b"N\x00\x02t\x00\x00\x00\x017u",
    ),
    (
        "update of the key",
        Update(0x4001, "K", (text(b"7"), NULL), (text(b"8"), UNCHANGED)),
        b"U" + _OID + b"K\x00\x02t\x00\x00\x00\x017nN\x00\x02t\x00\x00\x00\x018u",
    ),
    (
        "update under full",
        Update(0x4001, "O", (NULL, text(b"x")), (NULL, UNCHANGED)),
        b"U" + _OID + b"O\x00\x02nt\x00\x00\x00\x01xN\x00\x02nu",
    ),
    (
        "delete by key",
        Delete(0x4001, "K", (text(b"7"), NULL)),
        b"D" + _OID + b"K\x00\x02t\x00\x00\x00\x017n",
    ),
    (
        "delete under full",
        Delete(0x4001, "O", (text(b"7"), text(b"x"))),
        b"D" + _OID + b"O\x00\x02t\x00\x00\x00\x017t\x00\x00\x00\x01x",
    ),
    (
        "truncate",
        Truncate(True, True, (0x4001, 0xFFFFFFFF)),
        b"T\x00\x00\x00\x02\x03" + _OID + b"\xff\xff\xff\xff",
    ),
    ("truncate of nothing", Truncate(False, False, ()), b"T\x00\x00\x00\x00\x00"),
    (
        "message",
        LogicalMessage(True, LSN.parse("1/2030405"), "audit", b"a\0b"),
        b"M\x01" + _LSN + b"audit\0\x00\x00\x00\x03a\0b",
    ),
    (
        "message outside a transaction",
        LogicalMessage(False, LSN.parse("1/2030405"), "", b""),
        b"M\x00" + _LSN + b"\0\x00\x00\x00\x00",
    ),
]

ENVELOPES: Final[list[tuple[str, XLogData | PrimaryKeepalive, bytes]]] = [
    (
        "wal data",
        XLogData(LSN.parse("1/2030405"), LSN.parse("1/2030435"), _TIME_VALUE, b"E"),
        b"w" + _LSN + _END + _TIME + b"E",
    ),
    (
        "keepalive",
        PrimaryKeepalive(LSN.parse("1/2030435"), _TIME_VALUE, False),
        b"k" + _END + _TIME + b"\x00",
    ),
    (
        "keepalive that asks",
        PrimaryKeepalive(LSN.parse("1/2030435"), _TIME_VALUE, True),
        b"k" + _END + _TIME + b"\x01",
    ),
]

BROKEN: Final[list[tuple[str, bytes]]] = [
    ("nothing", b""),
    ("unknown type", b"Z"),
    ("unknown type, not printable", b"\x01"),
    ("stream start of no transaction", b"S\x00\x00\x00\x00\x01"),
    ("stream commit with flags", b"c\x00\x00\x02\xe3\x01" + _LSN + _END + _TIME),
    ("stream abort of no subtransaction", b"A\x00\x00\x02\xe3\x00\x00\x00\x00"),
    ("begin without a position", b"B" + bytes(8) + _TIME + b"\x00\x00\x02\xe3"),
    ("commit with flags", b"C\x01" + _LSN + _END + _TIME),
    ("prepare with flags", b"P\x01" + _PREPARED),
    ("begin prepare without a position", b"b" + bytes(8) + _PREPARED[8:]),
    ("rollback prepared with flags", b"r\x01" + _LSN + _END + _TIME + _TIME + _OID + b"\0"),
    ("relation of unknown identity", b"R" + _OID + b"public\0t\0x\x00\x00"),
    ("relation of too many columns", b"R" + _OID + b"public\0t\0d\xff\xff"),
    ("insert without N", b"I" + _OID + b"K\x00\x00"),
    ("update without N", b"U" + _OID + b"K\x00\x00O\x00\x00"),
    ("update of an unknown kind", b"U" + _OID + b"X\x00\x00"),
    ("delete without an old row", b"D" + _OID + b"N\x00\x00"),
    ("column of an unknown kind", b"I" + _OID + b"N\x00\x01x"),
    ("negative column count", b"I" + _OID + b"N\xff\xff"),
    ("negative length", b"I" + _OID + b"N\x00\x01t\xff\xff\xff\xff"),
    ("length past the end", b"I" + _OID + b"N\x00\x01t\x00\x00\x00\x02x"),
    ("negative count of relations", b"T\xff\xff\xff\xff\x00"),
]


def truncated(case: bytes) -> list[bytes]:
    """Every proper prefix, the empty one left out."""
    return [case[:size] for size in range(1, len(case))]
