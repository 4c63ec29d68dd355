"""Turn values in binary form into Arrow arrays without text in between.

Numbers, dates, times, texts and bytes of the common types are read in place, a column at a time.
``direct`` gives up for anything unusual: a value of a wrong size, infinity, a date that the lake
cannot hold, digits beyond the column's scale. The column is then read by way of text, which covers
every case and raises the errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from workers.columnar.binary import scalars as scalars
from workers.columnar.kernel import kernel
from workers.columnar.text_array import Array, text_array
from workers.columnar.tuples import Bytes, be16, be32, be64

Integers = npt.NDArray[np.int64]
Lengths = npt.NDArray[np.int32]

_EPOCH_DAYS: Final = 10_957  # PostgreSQL's epoch, 2000-01-01, in days since 1970
_FIRST_DAY: Final = -719_162  # 0001-01-01 in days since 1970
_LAST_DAY: Final = 2_932_896  # 9999-12-31
_DAY: Final = 86_400_000_000  # microseconds

_VERSION: Final = 1  # of jsonb, in front of the text

_DIGITS: Final = 18
"""The digits that an int64 can hold in any case."""
_POWERS: Final = np.array([10**n for n in range(_DIGITS + 1)], np.int64)
_NBASE: Final = 10_000
_HEADER: Final = 8  # of a numeric: digits, weight, sign, scale
_NEGATIVE: Final = 0x4000
_MOST_DSCALE: Final = 0x3FFF

_UNUSUAL: Final = -1

_fixed = pa.Array.from_buffers


def direct(
    kind: int, type: pa.DataType, buf: Bytes, loc: Integers, length: Lengths
) -> Array | None:
    """The values at ``loc`` of a kind as ``type``; None if text is necessary in between.

    ``length`` is the size of each value, below zero for NULL.
    """
    if kind in (scalars.TEXT, scalars.VERSIONED) and pa.types.is_string(type):
        return _text(kind, buf, loc, length)
    if kind == scalars.BYTEA and (pa.types.is_binary(type) or pa.types.is_large_binary(type)):
        strings = text_array(buf, loc, length)
        whole = _fixed(pa.binary(), len(loc), strings.buffers(), strings.null_count)
        return whole.cast(type)
    if kind == scalars.NUMERIC and pa.types.is_decimal128(type):
        return _decimal(type, buf, loc, length)
    size, fits, convert = _FIXED.get(kind, _NONE)
    if not size or not fits(type):
        return None
    values, valid = np.zeros(len(loc), np.int64), _no_bits(loc)
    nulls = _read_integers(buf, loc, length, size, values, valid)
    if nulls == _UNUSUAL:
        return None
    converted = convert(values, type)
    return None if converted is None else _array(type, len(loc), valid, nulls, converted)


def _no_bits(loc: Integers) -> npt.NDArray[np.uint8]:
    return np.zeros((len(loc) + 7) // 8, np.uint8)


def _array(
    type: pa.DataType, rows: int, valid: npt.NDArray[np.uint8], nulls: int, values: Any
) -> Array:
    py_buffer: Any = pa.py_buffer
    bits = py_buffer(valid) if nulls else None
    array: Array = _fixed(type, rows, [bits, py_buffer(values)], nulls)
    return array


def _text(kind: int, buf: Bytes, loc: Integers, length: Lengths) -> Array | None:
    """Text as sent; None for bytes that are no UTF-8, or an unknown version of jsonb."""
    if kind == scalars.VERSIONED:
        there = length >= 0
        if not np.all(length[there] > 0) or not np.all(buf[loc[there]] == _VERSION):
            return None
        loc, length = loc + 1, np.where(there, length - 1, length)
    strings = text_array(buf, loc, length)
    try:
        strings.validate(full=True)
    except pa.ArrowInvalid:
        return None
    return strings


# -- of a fixed size: 64-bit integers become the column's type, None if a value does not fit ------


def _integer(values: Integers, type: pa.DataType) -> Any:
    return values.astype(f"i{type.bit_width // 8}", copy=False)


def _boolean(values: Integers, type: pa.DataType) -> Any:
    return np.packbits(values != 0, bitorder="little")


def _float(values: Integers, type: pa.DataType) -> Any:
    size = type.bit_width // 8
    numbers = values.astype(f"i{size}", copy=False).view(f"f{size}")
    numbers[np.isnan(numbers)] = np.nan  # one NaN for all bit patterns, as in text
    return numbers


def _date(values: Integers, type: pa.DataType) -> Any:
    days = values + _EPOCH_DAYS
    outside = np.any(days < _FIRST_DAY) or np.any(days > _LAST_DAY)
    return None if outside else days.astype(np.int32)


def _timestamp(values: Integers, type: pa.DataType) -> Any:
    first, last = (day - _EPOCH_DAYS for day in (_FIRST_DAY, _LAST_DAY + 1))
    if np.any(values < first * _DAY) or np.any(values >= last * _DAY):
        return None
    return values + _EPOCH_DAYS * _DAY


def _is_wide(size: int) -> Callable[[pa.DataType], bool]:
    return lambda type: pa.types.is_signed_integer(type) and type.bit_width >= 8 * size


def _is_micros(*zones: str | None) -> Callable[[pa.DataType], bool]:
    types = [pa.timestamp("us", zone) for zone in zones]
    return lambda type: type in types


_FIXED: Final[dict[int, tuple[int, Callable[[Any], bool], Callable[[Integers, Any], Any]]]] = {
    scalars.INT2: (2, _is_wide(2), _integer),
    scalars.INT4: (4, _is_wide(4), _integer),
    scalars.INT8: (8, _is_wide(8), _integer),
    scalars.BOOL: (1, pa.types.is_boolean, _boolean),
    scalars.FLOAT4: (4, pa.types.is_float32, _float),
    scalars.FLOAT8: (8, pa.types.is_float64, _float),
    scalars.DATE: (4, pa.types.is_date32, _date),
    scalars.TIMESTAMP: (8, _is_micros(None), _timestamp),
    scalars.TIMESTAMPTZ: (8, _is_micros("UTC", None), _timestamp),
}
_NONE: Final = (0, pa.types.is_null, _integer)


@kernel
def _read_integers(buf: Any, loc: Any, length: Any, size: int, values: Any, valid: Any) -> Any:
    """Read big-endian integers of ``size`` bytes; the number of NULLs, or ``_UNUSUAL``."""
    nulls = 0
    for row in range(len(loc)):
        if length[row] < 0:
            nulls += 1
            continue
        if length[row] != size:
            return _UNUSUAL
        pos = loc[row]
        if size == 8:
            values[row] = be64(buf, pos)
        elif size == 4:
            values[row] = np.int32(be32(buf, pos))
        elif size == 2:
            values[row] = np.int16(be16(buf, pos))
        else:
            values[row] = buf[pos]
        valid[row >> 3] |= np.uint8(1 << (row & 7))
    return nulls


# -- numeric --------------------------------------------------------------------------------------


def _decimal(type: Any, buf: Bytes, loc: Integers, length: Lengths) -> Array | None:
    """Numerics, if no value needs more than 18 digits, with the zeros up to the column's scale."""
    halves, valid = np.zeros((len(loc), 2), np.int64), _no_bits(loc)
    most = 10 ** min(type.precision, _DIGITS)
    nulls = _read_decimals(buf, loc, length, type.scale, most, halves, valid)
    return None if nulls == _UNUSUAL else _array(type, len(loc), valid, nulls, halves)


@kernel
def _read_decimals(
    buf: Any, loc: Any, length: Any, scale: int, most: int, halves: Any, valid: Any
) -> Any:
    """Base-10000 digits, ``weight + 1`` of them before the point, as 128-bit integers."""
    nulls = 0
    for row in range(len(loc)):
        if length[row] < 0:
            nulls += 1
            continue
        pos = loc[row]
        if length[row] < _HEADER:
            return _UNUSUAL
        ndigits, weight, sign = be16(buf, pos), np.int16(be16(buf, pos + 2)), be16(buf, pos + 4)
        if length[row] != _HEADER + 2 * ndigits or sign not in (0, _NEGATIVE):
            return _UNUSUAL
        if be16(buf, pos + 6) > _MOST_DSCALE:
            return _UNUSUAL
        exponent = 4 * weight + scale  # of the first digit
        if ndigits and exponent + 4 > _DIGITS:
            return _UNUSUAL
        value = 0
        for digit in range(ndigits):
            group = be16(buf, pos + _HEADER + 2 * digit)
            if group >= _NBASE:
                return _UNUSUAL
            if exponent >= 0:
                value += group * _POWERS[exponent]
            elif exponent > -4:
                if group % _POWERS[-exponent]:
                    return _UNUSUAL
                value += group // _POWERS[-exponent]
            elif group:
                return _UNUSUAL
            exponent -= 4
        if value >= most:
            return _UNUSUAL
        if sign == _NEGATIVE:
            value = -value
        halves[row, 0], halves[row, 1] = value, value >> 63
        valid[row >> 3] |= np.uint8(1 << (row & 7))
    return nulls
