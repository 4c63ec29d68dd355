"""Damaged messages by the hundred thousand: refused with 08P01, or read; never anything else.

Each message is damaged in one to three ways and read by both decoders, the columnar one and the
one for single messages. What is still a row change then goes through fold and columns, where a
value may also be one that its type cannot hold. Values in binary form are damaged on their own,
too, for every type. A stub publisher sends damaged messages in damaged envelopes to the kernel that
drains a connection. A seed gives the same messages every time.
"""

from __future__ import annotations

import random
import resource
import select
import socket
import struct
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pytest

from catalog.errcodes import ProtocolViolation, ReplicationError
from tests.workers.columnar.built_in import built_in_types
from tests.workers.columnar.records import TABLE, delete, insert, layout, record, segment, update
from tests.workers.columnar.stub_publisher import COPY_DONE, copy_data, streaming
from tests.workers.columnar.test_drain import OVER, drain_of
from tests.workers.proto.cases import CASES, ENVELOPES
from workers.columnar.binary.forms import Form, Nodes, compile_forms, form_of
from workers.columnar.column_reader import ColumnReader, UnreadableValue, in_form
from workers.columnar.drain import _COMMITS, Drain, DrainStatus
from workers.columnar.fold.by_key import fold_keyed
from workers.columnar.fold.whole_rows import full_images
from workers.columnar.frame import Frame, frame
from workers.proto import decode, encode
from workers.proto.messages import (
    ColumnStatus,
    Delete,
    Insert,
    Message,
    TupleColumn,
    Update,
    XLogData,
)

ROWS: Final[list[Message]] = [
    insert("1", "12.5", None, "2026-11-21"),
    insert("2", "x" * 300, "t", "infinity"),
    update(("3", ..., "f", None)),
    update(("3", "1", "f", None), key=("4", None, None, None)),
    update(("5", ..., "t", "0001-01-01"), old=("5", "NaN", "t", None)),
    delete(key=("6", None, None, None)),
    delete(old=("7", "1", None, "2026-01-01 BC")),
]
SENT: Final = (b"\0\0\0\7", struct.pack(">hhHHhh", 2, 0, 0, 2, 12, 5000), b"\1", b"\0\0\1\0")
"""Values in binary form: int4, numeric, bool and date."""
BINARY_ROW: Final = tuple(TupleColumn(ColumnStatus.BINARY, value) for value in SENT)
BINARY_KEY: Final = (BINARY_ROW[0], *[TupleColumn(ColumnStatus.NULL)] * 3)
IN_BINARY: Final[list[Message]] = [
    Insert(TABLE, BINARY_ROW),
    Update(TABLE, "O", BINARY_ROW, (*BINARY_KEY[:3], TupleColumn(ColumnStatus.UNCHANGED))),
    Delete(TABLE, "K", BINARY_KEY),
]
NODES: Final = compile_forms([form_of(oid, {}) for oid in (23, 1700, 16, 1082)])
SOUND: Final = [
    *(raw for _, _, raw in CASES),
    *(encode.message(row) for row in [*ROWS, *IN_BINARY]),
]
BEGIN: Final = next(raw for name, _, raw in CASES if name == "begin")
COMMIT: Final = next(raw for name, _, raw in CASES if name == "commit")
"""Of the same transaction."""
SHORTEST: Final = {b"P": 31, b"K": 31, b"r": 39}
"""Bytes of an end of a prepared transaction with an empty name."""
HEADER: Final = ENVELOPES[0][2][:25]
"""Of a ``w`` message."""
ENVELOPED: Final = [*(raw for _, _, raw in ENVELOPES), *(HEADER + raw for raw in SOUND)]
LAYOUT: Final = layout(pa.int32(), pa.decimal128(9, 2), pa.bool_(), pa.date32())
WHOLE: Final = layout(pa.int32(), pa.decimal128(9, 2), pa.bool_(), pa.date32(), key=())
EXTREMES: Final = (
    b"\0\0\0\0",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\0\0\0\1",
)
LETTERS: Final = b"BCORYTMIUDKNSEcAbtundfwk"
MEMORY: Final = 100 << 10
"""Kilobytes by which the process may grow: Arrow and Numba keep what they had once."""


def memory() -> int:
    """The most that the process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def damage(chance: random.Random, raw: bytes) -> bytes:
    """One way of damaging it."""
    at = chance.randrange(len(raw))
    match chance.randrange(7):
        case 0:
            return raw[:at] + bytes([raw[at] ^ (1 << chance.randrange(8))]) + raw[at + 1 :]
        case 1:
            return raw[:at] + bytes([chance.choice(LETTERS)]) + raw[at + 1 :]
        case 2:
            return raw[:at] + chance.choice(EXTREMES) + raw[at + 4 :]
        case 3:
            return raw[: max(at, 1)]
        case 4:
            return raw + chance.randbytes(chance.randrange(1, 9))
        case 5:
            return raw[:at] + raw[at + chance.randrange(1, 9) :] or raw
        case _:
            end = at + chance.randrange(1, 9)
            return raw[:end] + raw[at:end] + raw[end:]


def damaged(chance: random.Random, sound: Sequence[bytes]) -> bytes:
    """One of these messages, damaged in one to three ways."""
    raw = chance.choice(sound)
    for _ in range(chance.randrange(1, 4)):
        raw = damage(chance, raw)
    return raw


def decodes(raw: bytes) -> bool | None:
    """Whether the decoder of single messages takes it; None if only a name is not UTF-8."""
    try:
        decode.message(raw)
    except ProtocolViolation as error:
        return None if error.detail and "UTF-8" in error.detail else False
    return True


def framed(raw: bytes) -> Frame | None:
    """In its place in a transaction: a Begin at its start, a Commit at its end, else within."""
    before = [] if raw[:1] == b"B" else [BEGIN]
    after = [] if raw[:1] == b"C" else [COMMIT]
    buf = np.frombuffer(b"".join(map(record, [*before, raw, *after])), np.uint8)
    try:
        return frame(buf, 0, len(buf))
    except ProtocolViolation:
        return None


def refused_for(error: ReplicationError) -> None:
    """The message, a value that is none of its type, or that the column cannot hold."""
    assert error.code in ("08P01", "0A000", "22003", "22P03", "22008")


def read(found: Frame, nodes: Nodes | None) -> bool:
    """Through fold and columns, by key and by whole row; False if it is in another form."""
    try:
        changes = in_form(found.changes(slice(None)), nodes)
    except UnreadableValue:
        return False
    try:
        keyed = fold_keyed(changes, LAYOUT)
        for batches in (keyed.merge_batches(), keyed.append_batches()):
            for batch in batches:
                batch.validate()
    except ReplicationError as error:
        refused_for(error)
    try:
        for batch in full_images(changes, WHOLE).image_batches():
            batch.validate()
    except ReplicationError as error:
        refused_for(error)
    return True


@pytest.mark.parametrize(
    ("seed", "messages"),
    [
        (1, 50_000),
        pytest.param(2, 1_000_000, marks=[pytest.mark.crash, pytest.mark.timeout(1200)]),
    ],
)
def test_only_protocol_violations(seed: int, messages: int) -> None:
    chance = random.Random(seed)
    before = taken = refused = texts = binaries = 0
    while taken + refused < messages:
        if taken + refused == messages // 10:  # all is compiled, which takes more
            before = memory()
        raw = damaged(chance, SOUND)
        sound, found = decodes(raw), framed(raw)
        if raw[:1] in (b"B", b"C"):  # it has to fit the other one, too, which the decoder leaves
            assert sound or found is None, raw
        elif raw[:1] in (b"b", b"P", b"K", b"r", b"p", b"S", b"E", b"c", b"A"):  # no batch has one
            assert found is None, raw
        else:
            assert sound is None or sound == (found is not None), raw
        if found is None:
            refused += 1
            continue
        taken += 1
        if len(found):
            texts += read(found, None)
            binaries += read(found, NODES)
    assert min(taken, refused) > messages // 20, "both kinds are met"
    assert min(texts, binaries) > messages // 200, "both forms are met"
    assert memory() - before < MEMORY


def spooled(raw: bytes) -> bytes | None:
    """What the spool gets of a message: its record, nothing, or None for one that is refused."""
    try:
        found = decode.copy_data(raw)
    except ProtocolViolation:
        return None
    if not isinstance(found, XLogData):
        return b""
    if found.data[:1] == b"C":
        whole = len(found.data) == len(COMMIT)
    else:
        whole = len(found.data) >= SHORTEST.get(found.data[:1], 1)
    return record(found.data) if whole else None


@pytest.mark.parametrize(
    ("seed", "messages"),
    [
        (3, 20_000),
        pytest.param(4, 500_000, marks=[pytest.mark.crash, pytest.mark.timeout(1200)]),
    ],
)
def test_the_kernel_that_drains_refuses_the_same_messages(seed: int, messages: int) -> None:
    """And spools all others, each as it is; a Commit that it notes says what it noted."""
    chance = random.Random(seed)
    every = (damaged(chance, ENVELOPED) for _ in range(2 * messages))
    sent = [raw for raw in every if raw[:1] != b"w" or raw[25:26] not in b"SEcpA"][:messages]
    wanted = bytearray()
    refusals: list[int] = []  # how much is spooled by then
    ends: dict[int, bytes] = {}  # the record that ends there
    for raw in sent:
        payload = spooled(raw)
        if payload is None:
            refusals.append(len(wanted))
        else:
            wanted += payload
            ends[len(wanted)] = payload[4:] or ends.get(len(wanted), b"")

    def script(sock: socket.socket) -> None:
        for at in range(0, messages, 1000):
            sock.sendall(b"".join(map(copy_data, sent[at : at + 1000])))
        sock.sendall(COPY_DONE)

    Drain(0).run(np.zeros(8, np.uint8), 0)  # is compiled
    before = memory()
    buf = np.zeros(len(wanted) + 4096, np.uint8)
    position = commits = refused = 0
    status = DrainStatus.IDLE
    with streaming(script) as conn:
        drain = drain_of(conn)
        while status not in OVER:
            try:
                result = drain.run(buf, position)
                position, status = result.position, result.status
            except ProtocolViolation:
                position = refusals[refused]
                refused += 1
                drain.close()  # of the message that is kept for its error
            noted = drain._commits[: drain._state[_COMMITS]].tolist()
            for end, final_lsn, end_lsn, *_ in noted:
                kind, first, second = struct.unpack(">cxqq", ends[end][:18])
                assert kind in (b"C", b"P", b"K", b"r")
                assert first == final_lsn
                assert second == end_lsn or (kind == b"P" and second < end_lsn)
            commits += len(noted)
            assert status is not DrainStatus.FULL, "more is spooled than was wanted"
            if status is DrainStatus.IDLE:
                select.select([conn.socket], [], [], 10)
        drain.close()
    assert (status, refused) == (DrainStatus.END, len(refusals))
    assert buf[:position].tobytes() == wanted
    assert min(commits, refused, messages - refused) > messages // 200, "each kind is met"
    assert memory() - before < MEMORY


VALUES: Final = [
    struct.pack(">hhHHhh", 2, 0, 0, 4, 12, 5000),  # numeric
    struct.pack(">iiiii", 1, 0, 23, 2, 1) + b"\0\0\0\4\0\0\0\7\xff\xff\xff\xff",
    b"\2\0\0\0\4\0\0\0\1\0\0\0\4\0\0\0\5",  # int4range
    b"\0\0\0\1\0\0\0\x11\2\0\0\0\4\0\0\0\1\0\0\0\4\0\0\0\5",
    b"\2\x18\0\4\x0a\1\2\3",  # inet
    b"\3\x40\0\x10" + bytes(16),
    b"\0\0\0\x0b\xaa\xa0",  # varbit
    b"\1{}",  # jsonb
    b"\0\0\0\1" + bytes(16),  # polygon
    *(bytes(size) for size in (0, 1, 4, 6, 8, 12, 16, 24, 32)),
    b"\xff" * 16,
]


def test_014_only_errors_of_the_value() -> None:
    """Any bytes as any type: its text, or an error of a receive function."""
    chance = random.Random(14)
    of_scalars = [oid for _, oid, _ in built_in_types()]
    oids = [*of_scalars, 1007, 1009, 1231, 3905, 4451, 4532]
    address = Form(104, tuple(form for oid in (23, 1009) if (form := form_of(oid, {}))))
    forms = [form for oid in oids if (form := form_of(oid, {}))] + [address]
    nodes = [compile_forms([form]) for form in forms]
    as_text = layout(pa.string(), key=())
    read_, refused = 0, 0
    for _ in range(20_000):
        value = chance.choice(VALUES)
        for _ in range(chance.randrange(3)):
            value = damage(chance, value or b"\0")
        sent = segment(Insert(TABLE, (TupleColumn(ColumnStatus.BINARY, value),)))
        reader = ColumnReader(in_form(sent, chance.choice(nodes)), as_text, as_text.columns)
        try:
            [(_, [text], _)] = reader.chunks(range(1, 2))
        except ReplicationError as error:
            refused_for(error)
            refused += 1
            continue
        read_ += 1
        text.validate(full=True)
        assert text.null_count == 0
    assert min(read_, refused) > 1000
