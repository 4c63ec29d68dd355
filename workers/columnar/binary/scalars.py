"""Write scalar values in binary form as text: one kernel that knows every type.

A number, the *kind*, stands for the type of a value; ``forms`` maps PostgreSQL's types to kinds.
``numbers`` prints numbers, ``times`` prints dates and times.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from workers.columnar.binary.numbers import (
    put_digits,
    put_float4,
    put_float8,
    put_int,
    put_numeric,
    put_unsigned,
    wrong_size,
)
from workers.columnar.binary.times import put_date, put_interval, put_time, put_timestamp
from workers.columnar.copy_bytes import copy_bytes
from workers.columnar.kernel import inner_kernel
from workers.columnar.tuples import INCORRECT, INSUFFICIENT, NO_ROOM, be16, be32, be64

INT2: Final = 1
INT4: Final = 2
INT8: Final = 3
TEXT: Final = 4
BOOL: Final = 5
FLOAT4: Final = 6
FLOAT8: Final = 7
NUMERIC: Final = 8
TIMESTAMP: Final = 9
TIMESTAMPTZ: Final = 10
DATE: Final = 11
UUID: Final = 12
VERSIONED: Final = 13  # jsonb and jsonpath: a version, then the text
BYTEA: Final = 14
TIME: Final = 15
TIMETZ: Final = 16
INTERVAL: Final = 17
OID: Final = 18
XID8: Final = 19
CHAR: Final = 20
INET: Final = 21
CIDR: Final = 22
MACADDR: Final = 23
MACADDR8: Final = 24
BITS: Final = 25
PG_LSN: Final = 26
TID: Final = 27
POINT: Final = 28
LSEG: Final = 29
BOX: Final = 30
LINE: Final = 31
CIRCLE: Final = 32
PATH: Final = 33
POLYGON: Final = 34

_FIXED_ROOM: Final = 192  # the longest text of a value of fixed size: a line of three floats
_VERSION: Final = 1
_INET4, _INET6 = 2, 3

_0, _1, _B = (np.uint8(ord(byte)) for byte in "01b")
_T, _F, _X, _SLASH, _COLON, _DOT, _DASH = (np.uint8(ord(byte)) for byte in "tfx/:.-")
_BACKSLASH, _COMMA, _OPEN, _CLOSE = (np.uint8(ord(byte)) for byte in "\\,()")
_SQUARE, _SQUARE_END, _CURLY, _CURLY_END, _LESS, _MORE = (np.uint8(ord(byte)) for byte in "[]{}<>")


@inner_kernel
def put_scalar(kind: int, buf: Any, pos: int, size: int, out: Any, at: int) -> Any:
    """The text of the value at ``pos`` of ``size`` bytes; minus an error code, or ``NO_ROOM``."""
    if at + _room(kind, buf, pos, size) > len(out):
        return -NO_ROOM
    if kind == TEXT:
        return _copy(buf, pos, size, out, at)
    if kind == INT4:
        return put_int(buf, pos, size, 4, out, at)
    if kind == INT8:
        return put_int(buf, pos, size, 8, out, at)
    if kind == INT2:
        return put_int(buf, pos, size, 2, out, at)
    if kind in (BOOL, CHAR):
        error = wrong_size(size, 1)
        if error:
            return -error
        if kind == CHAR:
            return _char(buf[pos], out, at)
        out[at] = _T if buf[pos] else _F
        return at + 1
    if kind in (TIMESTAMP, TIMESTAMPTZ):
        return put_timestamp(buf, pos, size, kind == TIMESTAMPTZ, out, at)
    if kind == NUMERIC:
        return put_numeric(buf, pos, size, out, at)
    if kind == FLOAT8:
        return put_float8(buf, pos, size, out, at)
    if kind == FLOAT4:
        return put_float4(buf, pos, size, out, at)
    if kind == DATE:
        return put_date(buf, pos, size, out, at)
    if kind == BYTEA:
        out[at], out[at + 1] = _BACKSLASH, _X
        return _hex(buf, pos, size, out, at + 2)
    return _rare(kind, buf, pos, size, out, at)


@inner_kernel
def _room(kind: int, buf: Any, pos: int, size: int) -> Any:
    """The most bytes that the text may take."""
    if kind in (TEXT, VERSIONED):
        return size
    if kind == BYTEA:
        return 2 + 2 * size
    if kind == BITS:
        return 8 * size
    if kind in (PATH, POLYGON):
        return 8 + 4 * size
    if kind == NUMERIC and size >= 8:
        weight = be16(buf, pos + 2)
        whole = weight + 1 if weight < 0x8000 else 0
        return 16 + 4 * whole + be16(buf, pos + 6)
    return _FIXED_ROOM


@inner_kernel
def _rare(kind: int, buf: Any, pos: int, size: int, out: Any, at: int) -> Any:
    """The rarer types."""
    if kind == UUID:
        return _uuid(buf, pos, size, out, at)
    if kind == VERSIONED:
        if size < 1:
            return -INSUFFICIENT
        if buf[pos] != _VERSION:
            return -INCORRECT
        return _copy(buf, pos + 1, size - 1, out, at)
    if kind in (TIME, TIMETZ):
        return put_time(buf, pos, size, kind == TIMETZ, out, at)
    if kind == INTERVAL:
        return put_interval(buf, pos, size, out, at)
    if kind in (INET, CIDR):
        return _inet(buf, pos, size, kind == CIDR, out, at)
    if kind in (MACADDR, MACADDR8):
        return _macaddr(buf, pos, size, 6 if kind == MACADDR else 8, out, at)
    if kind == BITS:
        return _bits(buf, pos, size, out, at)
    if kind in (OID, XID8, PG_LSN, TID):
        return _numbers(kind, buf, pos, size, out, at)
    return _shape(kind, buf, pos, size, out, at)


@inner_kernel
def _copy(buf: Any, pos: int, size: int, out: Any, at: int) -> Any:
    copy_bytes(out, at, buf, pos, size)
    return at + size


@inner_kernel
def _char(byte: Any, out: Any, at: int) -> Any:
    """The type "char": a byte, as an octal escape if not ASCII; zero is an empty text."""
    if byte >= 128:
        out[at] = _BACKSLASH
        out[at + 1] = np.uint8(48 + (byte >> 6))
        out[at + 2] = np.uint8(48 + ((byte >> 3) & 7))
        out[at + 3] = np.uint8(48 + (byte & 7))
        return at + 4
    if byte == 0:
        return at
    out[at] = byte
    return at + 1


@inner_kernel
def _digit(nibble: Any) -> Any:
    return np.uint8(48 + nibble if nibble < 10 else 87 + nibble)


@inner_kernel
def _hex(buf: Any, pos: int, size: int, out: Any, at: int) -> Any:
    for byte in range(size):
        out[at] = _digit(np.int64(buf[pos + byte]) >> 4)
        out[at + 1] = _digit(np.int64(buf[pos + byte]) & 15)
        at += 2
    return at


@inner_kernel
def _uuid(buf: Any, pos: int, size: int, out: Any, at: int) -> Any:
    error = wrong_size(size, 16)
    if error:
        return -error
    for byte in range(16):
        if byte in (4, 6, 8, 10):
            out[at] = _DASH
            at += 1
        at = _hex(buf, pos + byte, 1, out, at)
    return at


@inner_kernel
def _macaddr(buf: Any, pos: int, size: int, length: int, out: Any, at: int) -> Any:
    error = wrong_size(size, length)
    if error:
        return -error
    for byte in range(length):
        if byte:
            out[at] = _COLON
            at += 1
        at = _hex(buf, pos + byte, 1, out, at)
    return at


@inner_kernel
def _bits(buf: Any, pos: int, size: int, out: Any, at: int) -> Any:
    if size < 4:
        return -INSUFFICIENT
    count = be32(buf, pos)
    if count >= 0x80000000:
        return -INCORRECT
    error = wrong_size(size, 4 + (count + 7) // 8)
    if error:
        return -error
    for bit in range(count):
        out[at] = _1 if buf[pos + 4 + bit // 8] & (128 >> bit % 8) else _0
        at += 1
    return at


@inner_kernel
def _numbers(kind: int, buf: Any, pos: int, size: int, out: Any, at: int) -> Any:
    """oid, xid and cid; xid8; pg_lsn; tid."""
    error = wrong_size(size, 4 if kind == OID else 6 if kind == TID else 8)
    if error:
        return -error
    if kind == OID:
        return put_digits(be32(buf, pos), 1, out, at)
    if kind == XID8:
        return put_unsigned(np.uint64(be64(buf, pos)), out, at)
    if kind == TID:
        out[at] = _OPEN
        at = put_digits(be32(buf, pos), 1, out, at + 1)
        out[at] = _COMMA
        at = put_digits(be16(buf, pos + 4), 1, out, at + 1)
        out[at] = _CLOSE
        return at + 1
    at = _capital_hex(be32(buf, pos), out, at)
    out[at] = _SLASH
    return _capital_hex(be32(buf, pos + 4), out, at + 1)


@inner_kernel
def _capital_hex(number: int, out: Any, at: int) -> Any:
    shift = 28
    while shift > 0 and number >> shift == 0:
        shift -= 4
    while shift >= 0:
        digit = _digit((number >> shift) & 15)
        out[at] = digit - np.uint8(32) if digit >= 97 else digit
        at += 1
        shift -= 4
    return at


@inner_kernel
def _inet(buf: Any, pos: int, size: int, cidr: bool, out: Any, at: int) -> Any:
    """inet and cidr: family, bits of the mask, an unused flag, and the address."""
    if size < 4:
        return -INSUFFICIENT
    family, bits, length = buf[pos], np.int64(buf[pos + 1]), np.int64(buf[pos + 3])
    if family != _INET4 and family != _INET6:
        return -INCORRECT
    if length != (4 if family == _INET4 else 16) or bits > 8 * length:
        return -INCORRECT
    error = wrong_size(size, 4 + length)
    if error:
        return -error
    at = _ipv4(buf, pos + 4, out, at) if length == 4 else _ipv6(buf, pos + 4, out, at)
    if cidr or bits < 8 * length:
        out[at] = _SLASH
        at = put_digits(bits, 1, out, at + 1)
    return at


@inner_kernel
def _ipv4(buf: Any, pos: int, out: Any, at: int) -> Any:
    for byte in range(4):
        if byte:
            out[at] = _DOT
            at += 1
        at = put_digits(np.int64(buf[pos + byte]), 1, out, at)
    return at


@inner_kernel
def _ipv6(buf: Any, pos: int, out: Any, at: int) -> Any:
    """Eight words; the first longest run of at least two zeros is left out."""
    best, most = -1, 1
    word = 0
    while word < 8:
        run = word
        while run < 8 and be16(buf, pos + 2 * run) == 0:
            run += 1
        if run - word > most:
            best, most = word, run - word
        word = run + 1
    word = 0
    while word < 8:
        if word == best:
            out[at] = _COLON
            at += 1
            word += most
            if word == 8:
                out[at] = _COLON
                at += 1
            continue
        if word:
            out[at] = _COLON
            at += 1
        if word == 6 and best == 0 and _holds_ipv4(buf, pos, most):
            return _ipv4(buf, pos + 12, out, at)
        number = be16(buf, pos + 2 * word)
        shift = 12
        while shift > 0 and number >> shift == 0:
            shift -= 4
        while shift >= 0:
            out[at] = _digit((number >> shift) & 15)
            at += 1
            shift -= 4
        word += 1
    return at


@inner_kernel
def _holds_ipv4(buf: Any, pos: int, zeros: int) -> Any:
    """True if an address that begins with ``zeros`` zero words ends in IPv4 form."""
    if zeros == 6 or (zeros == 7 and be16(buf, pos + 14) != 1):
        return True
    return zeros == 5 and be16(buf, pos + 10) == 0xFFFF


@inner_kernel
def _shape(kind: int, buf: Any, pos: int, size: int, out: Any, at: int) -> Any:
    """The geometric types, all made of double precision numbers."""
    if kind in (PATH, POLYGON):
        return _points(kind, buf, pos, size, out, at)
    count = 2 if kind == POINT else 3 if kind in (LINE, CIRCLE) else 4
    error = wrong_size(size, 8 * count)
    if error:
        return -error
    if kind == POINT:
        return _point(buf, pos, out, at)
    if kind == LINE:
        for number in range(3):
            out[at] = _COMMA if number else _CURLY
            at = put_float8(buf, pos + 8 * number, 8, out, at + 1)
        out[at] = _CURLY_END
        return at + 1
    if kind == CIRCLE:
        out[at] = _LESS
        at = _point(buf, pos, out, at + 1)
        out[at] = _COMMA
        at = put_float8(buf, pos + 16, 8, out, at + 1)
        out[at] = _MORE
        return at + 1
    if kind == LSEG:
        out[at] = _SQUARE
        at += 1
    at = _point(buf, pos, out, at)
    out[at] = _COMMA
    at = _point(buf, pos + 16, out, at + 1)
    if kind == LSEG:
        out[at] = _SQUARE_END
        at += 1
    return at


@inner_kernel
def _point(buf: Any, pos: int, out: Any, at: int) -> Any:
    out[at] = _OPEN
    at = put_float8(buf, pos, 8, out, at + 1)
    out[at] = _COMMA
    at = put_float8(buf, pos + 8, 8, out, at + 1)
    out[at] = _CLOSE
    return at + 1


@inner_kernel
def _points(kind: int, buf: Any, pos: int, size: int, out: Any, at: int) -> Any:
    """A path, with a flag for a closed path, or a polygon, which is always closed."""
    head = 5 if kind == PATH else 4
    if size < head:
        return -INSUFFICIENT
    opened = kind == PATH and buf[pos] == 0
    count = be32(buf, pos + head - 4)
    if count == 0 or count >= 0x8000000:
        return -INCORRECT
    error = wrong_size(size, head + 16 * count)
    if error:
        return -error
    out[at] = _SQUARE if opened else _OPEN
    at += 1
    for number in range(count):
        if number:
            out[at] = _COMMA
            at += 1
        at = _point(buf, pos + head + 16 * number, out, at)
    out[at] = _SQUARE_END if opened else _CLOSE
    return at + 1
