"""Print dates and times in binary form as PostgreSQL does with DateStyle ISO, in UTC.

The kernels have the parameters and results of those in ``numbers``. A number outside the type's
range is an error, as in the receive functions.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from workers.columnar.binary.numbers import put_digits, put_infinity, put_signed, wrong_size
from workers.columnar.kernel import inner_kernel
from workers.columnar.tuples import OUT_OF_RANGE, be32, be64

_SPACE, _ZERO, _DOT, _MINUS, _PLUS, _COLON = (np.uint8(ord(byte)) for byte in " 0.-+:")
_B, _C, _S = (np.uint8(ord(byte)) for byte in "BCs")

_EPOCH: Final = 730_425  # 2000-01-01 in days since 0000-03-01
_FIRST_DATE, _END_DATE = -2_451_545, 2_145_031_949  # days since 2000-01-01
_FIRST_INSTANT, _END_INSTANT = -211_813_488_000_000_000, 9_223_371_331_200_000_000
_SECOND: Final = 1_000_000
_DAY: Final = 86_400 * _SECOND
_MOST_ZONE: Final = 16 * 3600
_MOST_INT4, _LEAST_INT4 = 0x7FFFFFFF, -0x80000000
_MOST_INT8, _LEAST_INT8 = 0x7FFFFFFFFFFFFFFF, -0x7FFFFFFFFFFFFFFF - 1

_YEAR, _MONTH, _DAYS = (np.frombuffer(word, np.uint8) for word in (b" year", b" mon", b" day"))


@inner_kernel
def _int4(buf: Any, pos: int) -> Any:
    number = be32(buf, pos)
    return number - 0x100000000 if number >= 0x80000000 else number


@inner_kernel
def _put_day(days: int, out: Any, at: int) -> Any:
    """A day counted from 2000-01-01; returns the end of the text, and True for a BC year."""
    days += _EPOCH
    era = days // 146_097
    of_era = days - era * 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year += era * 400
    if month <= 2:
        year += 1
    at = put_digits(year if year > 0 else 1 - year, 4, out, at)
    out[at] = _MINUS
    at = put_digits(month, 2, out, at + 1)
    out[at] = _MINUS
    return put_digits(day, 2, out, at + 1), year <= 0


@inner_kernel
def _put_bc(out: Any, at: int) -> Any:
    out[at], out[at + 1], out[at + 2] = _SPACE, _B, _C
    return at + 3


@inner_kernel
def _put_clock(micros: int, out: Any, at: int) -> Any:
    """HH:MM:SS, and the fraction without zeros at the end."""
    seconds = micros // _SECOND
    fraction = micros - seconds * _SECOND
    at = put_digits(seconds // 3600, 2, out, at)
    out[at] = _COLON
    at = put_digits(seconds // 60 % 60, 2, out, at + 1)
    out[at] = _COLON
    at = put_digits(seconds % 60, 2, out, at + 1)
    if fraction:
        out[at] = _DOT
        at = put_digits(fraction, 6, out, at + 1)
        while out[at - 1] == _ZERO:
            at -= 1
    return at


@inner_kernel
def put_date(buf: Any, pos: int, size: int, out: Any, at: int) -> Any:
    """date: days since 2000-01-01."""
    error = wrong_size(size, 4)
    if error:
        return -error
    days = _int4(buf, pos)
    if days in (_MOST_INT4, _LEAST_INT4):
        return put_infinity(days < 0, False, out, at)
    if not _FIRST_DATE <= days < _END_DATE:
        return -OUT_OF_RANGE
    at, before_christ = _put_day(days, out, at)
    return _put_bc(out, at) if before_christ else at


@inner_kernel
def put_timestamp(buf: Any, pos: int, size: int, zoned: bool, out: Any, at: int) -> Any:
    """timestamp, or timestamptz if ``zoned``: microseconds since 2000-01-01."""
    error = wrong_size(size, 8)
    if error:
        return -error
    micros = be64(buf, pos)
    if micros in (_MOST_INT8, _LEAST_INT8):
        return put_infinity(micros < 0, False, out, at)
    if not _FIRST_INSTANT <= micros < _END_INSTANT:
        return -OUT_OF_RANGE
    days = micros // _DAY
    at, before_christ = _put_day(days, out, at)
    out[at] = _SPACE
    at = _put_clock(micros - days * _DAY, out, at + 1)
    if zoned:
        out[at], out[at + 1], out[at + 2] = _PLUS, _ZERO, _ZERO
        at += 3
    return _put_bc(out, at) if before_christ else at


@inner_kernel
def put_time(buf: Any, pos: int, size: int, zoned: bool, out: Any, at: int) -> Any:
    """time, or timetz if ``zoned``; the zone is in seconds west of UTC."""
    error = wrong_size(size, 12 if zoned else 8)
    if error:
        return -error
    micros = be64(buf, pos)
    if not 0 <= micros <= _DAY:
        return -OUT_OF_RANGE
    at = _put_clock(micros, out, at)
    if not zoned:
        return at
    zone = _int4(buf, pos + 8)
    if not -_MOST_ZONE < zone < _MOST_ZONE:
        return -OUT_OF_RANGE
    out[at] = _MINUS if zone > 0 else _PLUS
    zone = abs(zone)
    at = put_digits(zone // 3600, 2, out, at + 1)
    if zone % 3600:
        out[at] = _COLON
        at = put_digits(zone // 60 % 60, 2, out, at + 1)
    if zone % 60:
        out[at] = _COLON
        at = put_digits(zone % 60, 2, out, at + 1)
    return at


@inner_kernel
def _put_part(number: int, unit: Any, first: bool, plus: bool, out: Any, at: int) -> Any:
    """A number and a unit, with a sign if the part before had a minus."""
    if not first:
        out[at] = _SPACE
        at += 1
    if plus and number > 0:
        out[at] = _PLUS
        at += 1
    at = put_signed(number, out, at)
    for byte in unit:
        out[at] = byte
        at += 1
    if number != 1:
        out[at] = _S
        at += 1
    return at


@inner_kernel
def put_interval(buf: Any, pos: int, size: int, out: Any, at: int) -> Any:
    """interval: microseconds, days and months, in IntervalStyle postgres."""
    error = wrong_size(size, 16)
    if error:
        return -error
    micros, days, months = be64(buf, pos), _int4(buf, pos + 8), _int4(buf, pos + 12)
    if micros == _MOST_INT8 and days == _MOST_INT4 and months == _MOST_INT4:
        return put_infinity(False, False, out, at)
    if micros == _LEAST_INT8 and days == _LEAST_INT4 and months == _LEAST_INT4:
        return put_infinity(True, False, out, at)
    years = abs(months) // 12
    if months < 0:
        years = -years
    months -= 12 * years
    first, plus = True, False
    if years:
        at = _put_part(years, _YEAR, first, plus, out, at)
        first, plus = False, years < 0
    if months:
        at = _put_part(months, _MONTH, first, plus, out, at)
        first, plus = False, months < 0
    if days:
        at = _put_part(days, _DAYS, first, plus, out, at)
        first, plus = False, days < 0
    if not first and not micros:
        return at
    if not first:
        out[at] = _SPACE
        at += 1
    if micros < 0 or plus:
        out[at] = _MINUS if micros < 0 else _PLUS
        at += 1
    if micros == _LEAST_INT8:  # has no positive counterpart
        at = _put_clock(_MOST_INT8, out, at)
        out[at - 1] += np.uint8(1)
        return at
    return _put_clock(abs(micros), out, at)
