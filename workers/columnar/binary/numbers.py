"""Print numbers in binary form as PostgreSQL's output functions do.

Every kernel takes (buf, pos, size, out, at), checks the value as the type's receive function does,
writes the text to ``out`` from ``at`` on, and returns the end of the text, or minus an error code.
The caller makes sure that ``out`` has room.

A float is printed with the shortest digits that read back to the float. Giulietti's Schubfach finds
the digits; the bounds of the rounding interval are left out, because PostgreSQL's printer does not
trust readers to round half to even either.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from workers.columnar.kernel import inner_kernel
from workers.columnar.tuples import INCORRECT, INSUFFICIENT, be16, be32, be64

_ZERO, _DOT, _MINUS, _PLUS, _E = (np.uint8(ord(byte)) for byte in "0.-+e")

_1, _2, _4, _10, _32, _40, _LOW = (np.uint64(n) for n in (1, 2, 4, 10, 32, 40, 0xFFFFFFFF))

_NEGATIVE, _NAN, _INFINITE, _NEGATIVE_INFINITE = 0x4000, 0xC000, 0xD000, 0xF000
_MOST_DSCALE: Final = 0x3FFF
_NBASE: Final = 10_000

_LEAST_POWER, _MOST_POWER = -292, 324


def _powers() -> npt.NDArray[np.uint64]:
    """10^k for k from -292 to 324 as 128 bits with the highest one set, rounded up."""
    rows = []
    for k in range(_LEAST_POWER, _MOST_POWER + 1):
        bits = (k * 1741647) >> 19  # floor(log2(10^k))
        shift = 127 - bits
        if k >= 0:
            whole = 10**k
            scaled = whole << shift if shift >= 0 else -(-whole >> -shift)
        else:
            scaled = -(-(1 << shift) // 10**-k)
        rows.append((scaled >> 64, scaled & 0xFFFFFFFFFFFFFFFF))
    return np.array(rows, np.uint64)


_POWERS: Final = _powers()


@inner_kernel
def wrong_size(size: int, expected: Any) -> Any:
    """0, or the error for a value of a wrong size."""
    if size == expected:
        return 0
    return INSUFFICIENT if size < expected else INCORRECT


@inner_kernel
def put_word(word: Any, out: Any, at: int) -> Any:
    """Write the letters of ``word``, an array of bytes."""
    for byte in word:
        out[at] = byte
        at += 1
    return at


@inner_kernel
def put_digits(number: Any, width: int, out: Any, at: int) -> Any:
    """A number that is not negative, with zeros in front up to ``width`` digits."""
    digits = 1
    rest = number // 10
    while rest > 0:
        digits += 1
        rest //= 10
    digits = max(digits, width)
    for place in range(at + digits - 1, at - 1, -1):
        rest = number // 10
        out[place] = np.uint8(48 + number - rest * 10)
        number = rest
    return at + digits


@inner_kernel
def put_unsigned(number: Any, out: Any, at: int) -> Any:
    """An unsigned 64-bit number."""
    high = number // np.uint64(10_000_000_000)
    low = np.int64(number - high * np.uint64(10_000_000_000))
    if high == np.uint64(0):
        return put_digits(low, 1, out, at)
    return put_digits(low, 10, out, put_digits(np.int64(high), 1, out, at))


@inner_kernel
def put_signed(number: int, out: Any, at: int) -> Any:
    """A signed 64-bit number."""
    if number >= 0:
        return put_digits(number, 1, out, at)
    out[at] = _MINUS
    return put_unsigned(np.uint64(-(number + 1)) + _1, out, at + 1)


@inner_kernel
def put_int(buf: Any, pos: int, size: int, width: int, out: Any, at: int) -> Any:
    """int2, int4 or int8, by ``width``."""
    error = wrong_size(size, width)
    if error:
        return -error
    if width == 2:
        number = be16(buf, pos)
        if number >= 0x8000:
            number -= 0x10000
    elif width == 4:
        number = be32(buf, pos)
        if number >= 0x80000000:
            number -= 0x100000000
    else:
        number = be64(buf, pos)
    return put_signed(number, out, at)


@inner_kernel
def put_numeric(buf: Any, pos: int, size: int, out: Any, at: int) -> Any:
    """numeric: base-10000 digits, ``weight + 1`` of them before the point."""
    if size < 8:
        return -INSUFFICIENT
    ndigits, weight, sign = be16(buf, pos), be16(buf, pos + 2), be16(buf, pos + 4)
    dscale = be16(buf, pos + 6)
    error = wrong_size(size, 8 + 2 * ndigits)
    if error:
        return -error
    if weight >= 0x8000:
        weight -= 0x10000
    if sign == _NAN:
        return put_word((np.uint8(78), np.uint8(97), np.uint8(78)), out, at)
    if sign in (_INFINITE, _NEGATIVE_INFINITE):
        return put_infinity(sign == _NEGATIVE_INFINITE, True, out, at)
    if (sign != 0 and sign != _NEGATIVE) or dscale > _MOST_DSCALE:
        return -INCORRECT
    pos += 8
    nonzero = False
    for digit in range(ndigits):
        group = be16(buf, pos + 2 * digit)
        if group >= _NBASE:
            return -INCORRECT
        nonzero |= group != 0
    if sign == _NEGATIVE and nonzero:
        out[at] = _MINUS
        at += 1
    begun = False
    for digit in range(weight + 1):
        group = be16(buf, pos + 2 * digit) if digit < ndigits else 0
        if begun or group:
            at = put_digits(group, 4 if begun else 1, out, at)
            begun = True
    if not begun:
        out[at] = _ZERO
        at += 1
    if dscale > 0:
        out[at] = _DOT
        at += 1
        end = at + dscale
        digit = weight + 1
        while at < end:
            group = be16(buf, pos + 2 * digit) if 0 <= digit < ndigits else 0
            at = put_digits(group, 4, out, at)  # may run over the end by three
            digit += 1
        at = end
    return at


@inner_kernel
def put_infinity(negative: bool, capital: bool, out: Any, at: int) -> Any:
    """``infinity`` or ``Infinity``."""
    if negative:
        out[at] = _MINUS
        at += 1
    for byte in (73, 110, 102, 105, 110, 105, 116, 121):
        out[at] = np.uint8(byte)
        at += 1
    if not capital:
        out[at - 8] = np.uint8(105)
    return at


@inner_kernel
def put_float4(buf: Any, pos: int, size: int, out: Any, at: int) -> Any:
    """real."""
    error = wrong_size(size, 4)
    if error:
        return -error
    bits = be32(buf, pos)
    return _put_float(bits >> 31, (bits >> 23) & 0xFF, bits & 0x7FFFFF, 23, out, at)


@inner_kernel
def put_float8(buf: Any, pos: int, size: int, out: Any, at: int) -> Any:
    """double precision."""
    error = wrong_size(size, 8)
    if error:
        return -error
    bits = be64(buf, pos)
    exponent, fraction = (bits >> 52) & 0x7FF, bits & 0xFFFFFFFFFFFFF
    return _put_float(np.int64(bits < 0), exponent, fraction, 52, out, at)


@inner_kernel
def _put_float(sign: Any, exponent: int, fraction: int, places: int, out: Any, at: int) -> Any:
    """A float with ``places`` bits after the point; double if 52, else single precision."""
    double = places == 52
    greatest = 0x7FF if double else 0xFF
    if exponent == greatest and fraction:
        return put_word((np.uint8(78), np.uint8(97), np.uint8(78)), out, at)
    if exponent == greatest:
        return put_infinity(sign != 0, True, out, at)
    if sign:
        out[at] = _MINUS
        at += 1
    if not exponent and not fraction:
        out[at] = _ZERO
        return at + 1
    bias = (1023 if double else 127) + places
    digits, power = _shortest(exponent, fraction, places, bias)
    while digits % 10 == 0:
        digits //= 10
        power += 1
    return _put_decimal(digits, power, 15 if double else 6, out, at)


@inner_kernel
def _put_decimal(digits: int, power: int, most: int, out: Any, at: int) -> Any:
    """``digits`` × 10^``power`` as %g prints it with a precision of ``most``."""
    start = at
    at = put_digits(digits, 1, out, at)
    count = at - start
    exponent = power + count - 1
    if exponent < -4 or exponent >= most:
        if count > 1:
            for place in range(at, start + 1, -1):
                out[place] = out[place - 1]
            out[start + 1] = _DOT
            at += 1
        out[at] = _E
        out[at + 1] = _MINUS if exponent < 0 else _PLUS
        return put_digits(abs(exponent), 2, out, at + 2)
    if power >= 0:
        for place in range(power):
            out[at + place] = _ZERO
        return at + power
    if exponent >= 0:
        for place in range(at, start + exponent + 1, -1):
            out[place] = out[place - 1]
        out[start + exponent + 1] = _DOT
        return at + 1
    shift = 1 - exponent  # "0." and zeros
    for place in range(at - 1, start - 1, -1):
        out[place + shift] = out[place]
    for place in range(shift):
        out[start + place] = _ZERO
    out[start + 1] = _DOT
    return at + shift


@inner_kernel
def _high(one: Any, other: Any) -> Any:
    """The upper 64 bits of a product of two 64-bit numbers."""
    a, b = one >> _32, one & _LOW
    c, d = other >> _32, other & _LOW
    low, cross, other_cross = b * d, a * d, b * c
    middle = (low >> _32) + (cross & _LOW) + (other_cross & _LOW)
    return a * c + (cross >> _32) + (other_cross >> _32) + (middle >> _32)


@inner_kernel
def _to_odd(row: int, factor: Any) -> Any:
    """The upper part of a power of ten times ``factor``; odd if bits were lost."""
    high, low = _POWERS[row, 0], _POWERS[row, 1]
    carried = _high(low, factor)
    middle = high * factor + carried
    upper = _high(high, factor)
    if middle < carried:
        upper += _1
    return upper | (_1 if middle > _1 else np.uint64(0))


@inner_kernel
def _shortest(exponent: int, fraction: int, places: int, bias: int) -> Any:
    """The digits and the power of ten of the shortest decimal inside the rounding interval."""
    c, q = fraction, 1 - bias
    if exponent:
        c, q = fraction | (1 << places), exponent - bias
        if 0 <= -q <= places and c & ((1 << -q) - 1) == 0:
            return c >> -q, 0
    closer = 1 if fraction == 0 and exponent > 1 else 0
    k = (q * 1262611 - (524031 if closer else 0)) >> 22
    shift = np.uint64(q + ((-k * 1741647) >> 19) + 1)
    row = -k - _LEAST_POWER
    lower = _to_odd(row, np.uint64(4 * c - 2 + closer) << shift) + _1
    value = _to_odd(row, np.uint64(4 * c) << shift)
    upper = _to_odd(row, np.uint64(4 * c + 2) << shift) - _1
    s = value // _4
    if s >= _10:
        tens = s // _10
        below = lower <= _40 * tens
        above = _40 * tens + _40 <= upper
        if below != above:
            return np.int64(tens) + (1 if above else 0), k + 1
    below = lower <= _4 * s
    above = _4 * s + _4 <= upper
    if below != above:
        return np.int64(s) + (1 if above else 0), k
    middle = _4 * s + _2
    up = value > middle or (value == middle and s & _1 != np.uint64(0))
    return np.int64(s) + (1 if up else 0), k
