"""Turn a logical message into records of the spool: an Insert, and a transaction if need be.

A Message is ``M``, flags, the message's LSN, prefix, NUL, length and content. The Insert has the
same bytes in the middle: prefix, ``b``, length, content. So prefix and content are copied once, and
the NUL becomes the status byte of the content. The columns are those of ``proto.message_rows``::

    M  flags  lsn           prefix 0 length content
    I  relid  N 4  b length prefix b length content  b 8 lsn  b 1 transactional

A transactional message stands between the Begin and the Commit of its transaction. Every other
message comes alone, as soon as the publisher decodes it, and
its transaction may be rolled back. The LSN is the end of the message's record in the WAL, and the
publisher decodes the WAL in order: the LSN is above the end of each transaction that came before,
and not above the start of each commit record that comes later. So such a message is a transaction
alone, that ends at the LSN: a table that has the LSN skips the message when it comes again, and a
publisher that starts at the LSN does not send it again. The commit record of this transaction
begins at the byte before, inside of the message's record, where nothing else begins.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from workers.columnar import libpq
from workers.columnar.kernel import kernel
from workers.columnar.tuples import be32, be64
from workers.proto.message_rows import DDL_PREFIX, RELID

_I, _N, _B, _BEGIN, _COMMIT = (np.uint8(ord(byte)) for byte in "INbBC")

_FIXED: Final = 10  # of a Message: type byte, flags, LSN
_SHORTEST: Final = 5  # the NUL of an empty prefix, and the length of an empty content
_BEFORE: Final = 13  # of an Insert: before the prefix
_BEHIND: Final = 19  # of an Insert: behind the content
_PREFIX_AT: Final = 35  # in the envelope
_TRIGGERS: Final = tuple(f"{DDL_PREFIX}\0".encode())
_BEGIN_RECORD: Final = 25
_COMMIT_RECORD: Final = 30


@kernel
def is_alone(head: Any, at: int) -> Any:
    """Is the Message whose flags are at ``head[at]`` not of a transaction?"""
    return head[at] & 1 == 0


@kernel
def is_of_triggers(head: Any, length: int) -> Any:
    """Has the Message in the envelope ``head`` the prefix of the event triggers?"""
    if length < _PREFIX_AT + len(_TRIGGERS):
        return False
    differ = 0
    for byte in range(len(_TRIGGERS)):
        differ += head[_PREFIX_AT + byte] != _TRIGGERS[byte]
    return differ == 0


@kernel
def size_as_rows(length: int, alone: bool) -> Any:
    """The bytes of the records of a Message of ``length`` bytes."""
    insert = 4 + length - _FIXED + _BEFORE + _BEHIND
    return insert + _BEGIN_RECORD + _COMMIT_RECORD if alone else insert


@kernel
def write_rows(
    out: Any, position: int, head: Any, at: int, source: int, length: int, alone: bool
) -> Any:
    """Write the records of a Message at ``position``; False for a message that is malformed.

    ``head`` has the first bytes of the message in its envelope. The flags are at ``head[at]``, and
    at ``source`` in memory. ``length`` is the message's.
    """
    rest = length - _FIXED
    if rest < _SHORTEST:
        return False
    lsn = be64(head, at + 1)
    if alone:
        if lsn < 2:
            return False
        sent = be64(head, 17)
        _header(out, position, _BEGIN_RECORD, _BEGIN)
        _put(out, position + 5, lsn - 1, 8)
        _put(out, position + 13, sent, 8)
        _put(out, position + 21, 0, 4)
        position += _BEGIN_RECORD
    start = position + 4 + _BEFORE
    libpq.memcpy(out.ctypes.data + start, source + _FIXED - 1, rest)
    end = start + rest
    nul = start
    while nul < end and out[nul] != 0:
        nul += 1
    if end - nul < _SHORTEST or be32(out, nul + 1) != end - nul - _SHORTEST:
        return False
    out[nul] = _B
    _header(out, position, 4 + _BEFORE + rest + _BEHIND, _I)
    _put(out, position + 5, RELID, 4)
    out[position + 9] = _N
    _put(out, position + 10, 4, 2)
    out[position + 12] = _B
    _put(out, position + 13, nul - start, 4)
    out[end] = _B
    _put(out, end + 1, 8, 4)
    _put(out, end + 5, lsn, 8)
    out[end + 13] = _B
    _put(out, end + 14, 1, 4)
    out[end + 18] = head[at] & 1
    if alone:
        position = end + _BEHIND
        _header(out, position, _COMMIT_RECORD, _COMMIT)
        out[position + 5] = 0
        _put(out, position + 6, lsn - 1, 8)
        _put(out, position + 14, lsn, 8)
        _put(out, position + 22, sent, 8)
    return True


@kernel
def _header(out: Any, position: int, size: int, kind: Any) -> None:
    """The length and the type byte of a record of ``size`` bytes."""
    for byte in range(4):
        out[position + byte] = np.uint8(((size - 4) >> (8 * byte)) & 255)
    out[position + 4] = kind


@kernel
def _put(out: Any, position: int, value: int, width: int) -> None:
    """A number, big-endian."""
    for byte in range(width):
        out[position + byte] = np.uint8((value >> (8 * (width - 1 - byte))) & 255)
