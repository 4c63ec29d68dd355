"""Damaged messages of transactions in progress, by the kernel that drains and by the decoder.

The kernel takes the id of a subtransaction out of each record, and leaves the content to whoever
reads the record later. So the decoder of streamed messages and the kernel, with the decoder of
ordinary messages behind the kernel, must refuse the same messages. Parts of transactions begin and
end at random, and ordinary messages come between the parts. A seed gives the same messages every
time.
"""

from __future__ import annotations

import random
import select
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pytest

from catalog.errcodes import ProtocolViolation
from catalog.pg_lsn import LSN
from tests.workers.columnar.records import record
from tests.workers.columnar.stub_publisher import COPY_DONE, copy_data, streaming
from tests.workers.columnar.test_drain import OVER, drain_of
from tests.workers.columnar.test_fuzz import HEADER, IN_BINARY, ROWS, SOUND, damaged, spooled
from workers.columnar.drain import _SCRATCH, _SUBS, Drain, DrainStatus
from workers.proto import decode, encode
from workers.proto.messages import (
    Message,
    StreamAbort,
    StreamCommit,
    StreamPrepare,
    StreamStart,
    StreamStop,
    Truncate,
)

XIDS: Final = (7, 8, 9, 0xFFFFFFFF)
"""The transaction, subtransactions, and the greatest id."""
HEADER_BYTES: Final = len(HEADER)
LETTERS_OF_CONTROLS: Final = (b"S", b"E", b"c", b"p", b"A")
CONTROLS: Final[list[Message]] = [
    StreamStart(7, True),
    StreamStart(7, False),
    StreamStop(),
    StreamCommit(7, LSN(100), LSN(110), 5),
    StreamAbort(7, 8),
    StreamPrepare(LSN(100), LSN(110), 5, 7, "gid"),
]


def _streamed(chance: random.Random) -> bytes:
    """A sound message of a part."""
    rows = [*ROWS, *IN_BINARY, Truncate(False, False, (16385,))]
    if chance.random() < 0.1:
        return encode.message(chance.choice(CONTROLS))
    if chance.random() < 0.1:
        return chance.choice(SOUND)  # most of them may not come in a part
    return encode.streamed(chance.choice(rows), chance.choice(XIDS))


def sent(chance: random.Random, messages: int) -> Iterator[bytes]:
    """Half of the messages are damaged, envelopes too."""
    while messages:
        raw = HEADER + _streamed(chance)
        if chance.random() < 0.5:
            raw = damaged(chance, [raw])
        if raw[:1] == b"w" and raw[HEADER_BYTES:][:1] == b"S" and len(raw) < HEADER_BYTES + 5:
            continue  # the worker ends there; no part has begun
        messages -= 1
        yield raw


@dataclass
class Expected:
    """What is to come of the messages so far."""

    in_part: int = 0
    spool: bytearray = field(default_factory=bytearray)
    refusals: list[int] = field(default_factory=list)
    """How much is spooled by then."""
    controls: list[Message] = field(default_factory=list)
    subs: list[tuple[int, int]] = field(default_factory=list)
    """The id, and the offset of the first record."""
    taken: int = 0
    _sub: int = 0

    def take(self, raw: bytes) -> None:
        """One message, in its envelope."""
        ordinary, data = spooled(raw), raw[HEADER_BYTES:]
        is_control = raw[:1] == b"w" and data[:1] in LETTERS_OF_CONTROLS
        if raw[:1] == b"w" and (not data or (is_control and len(raw) > _SCRATCH)):
            self.refusals.append(len(self.spool))
        elif is_control:
            self._control(data)
        elif raw[:1] == b"w" and self.in_part:
            self._of_part(data)
        elif ordinary is None:
            self.refusals.append(len(self.spool))
        else:
            self.spool += ordinary

    def _control(self, data: bytes) -> None:
        begins = data[:1] == b"S"
        self.in_part = self._sub = int.from_bytes(data[1:5], "big") if begins else 0
        try:
            self.controls.append(decode.message(data))
        except ProtocolViolation:
            self.refusals.append(len(self.spool))

    def _of_part(self, data: bytes) -> None:
        """A message that one decoder refuses is refused by the other, now or behind the spool."""
        try:
            xid, message = decode.streamed(data)
        except ProtocolViolation:
            behind = self._left_to_readers(data)
            if behind is None:
                self.refusals.append(len(self.spool))
                return
            with pytest.raises(ProtocolViolation):
                decode.message(behind)
            self._note(int.from_bytes(data[1:5], "big") if data[:1] != b"O" else None, behind)
            return
        behind = self._left_to_readers(data)
        assert behind is not None, "the decoder takes what the kernel refuses"
        assert decode.message(behind) == message
        self.taken += 1
        self._note(xid, behind)

    @staticmethod
    def _left_to_readers(data: bytes) -> bytes | None:
        """The record's content, without the id; None for a message that the kernel refuses."""
        if data[:1] == b"O":
            return data
        has_id = data[:1] in b"IUDTRYM" and len(data) >= 5 and data[1:5] != bytes(4)
        return data[:1] + data[5:] if has_id else None

    def _note(self, xid: int | None, content: bytes) -> None:
        if xid is not None and xid != self._sub:
            self._sub = xid
            if xid != self.in_part:
                self.subs.append((xid, len(self.spool)))
        self.spool += record(content)


@pytest.mark.parametrize(
    ("seed", "messages"),
    [
        (5, 20_000),
        pytest.param(6, 500_000, marks=[pytest.mark.crash, pytest.mark.timeout(1200)]),
    ],
)
def test_both_decoders_refuse_the_same_messages_of_a_part(seed: int, messages: int) -> None:
    every = list(sent(random.Random(seed), messages))
    expected = Expected()
    for raw in every:
        expected.take(raw)

    def script(sock: socket.socket) -> None:
        for at in range(0, messages, 1000):
            sock.sendall(b"".join(map(copy_data, every[at : at + 1000])))
        sock.sendall(COPY_DONE)

    Drain(0).run(np.zeros(8, np.uint8), 0)  # is compiled
    buf = np.zeros(len(expected.spool) + 4096, np.uint8)
    position = refused = 0
    controls: list[object] = []
    subs: list[tuple[int, int]] = []
    status = DrainStatus.IDLE
    with streaming(script) as conn:
        drain = drain_of(conn)
        while status not in OVER:
            try:
                result = drain.run(buf, position)
                position, status = result.position, result.status
                controls += [result.control] if result.control is not None else []
            except ProtocolViolation:
                position = expected.refusals[refused]
                refused += 1
                drain.close()  # of the message that is kept for its error
            subs += [(sub, at) for sub, at, _ in drain._subs[: drain._state[_SUBS]].tolist()]
            assert status is not DrainStatus.FULL, "more is spooled than was expected"
            if status is DrainStatus.IDLE:
                select.select([conn.socket], [], [], 10)
        drain.close()
    assert (status, refused) == (DrainStatus.END, len(expected.refusals))
    assert buf[:position].tobytes() == expected.spool
    assert controls == expected.controls
    assert subs == expected.subs
    kinds = (expected.taken, refused, len(controls), len(subs))
    assert min(kinds) > messages // 100, "each kind is met"
