"""Turn PostgreSQL's text into typed Arrow arrays, exactly or not at all.

``typed`` reads the text forms of a walsender or a COPY (DateStyle ISO) into the type of a lake
column. A value is never rounded or moved. A value that the type cannot hold (NaN in a decimal,
infinity or a BC year in a date, a nested array) is *unrepresentable*, and the caller chooses
between an error and NULL, for dates and timestamps also the type's first or last value. The module
imports only pyarrow, NumPy and the standard library, because copy tasks carry it to Spark's
executors by value.
"""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

pc: Final[Any] = pyarrow.compute  # the stubs do not know arrays of unknown type

_FIRST_DAY: Final = -719_162  # 0001-01-01 in days since 1970-01-01
_LAST_DAY: Final = 2_932_896  # 9999-12-31
_DAY: Final = 86_400_000_000  # microseconds
_FIRST_INSTANT: Final = _FIRST_DAY * _DAY
_LAST_INSTANT: Final = (_LAST_DAY + 1) * _DAY - 1  # 9999-12-31 23:59:59.999999

_ZERO: Final = r"^[-+]?0*\.?0*([eE].*)?$"
_DIGITS: Final = 38  # 128 bits hold any number of 38 digits
_SECONDS_ZONE: Final = r"^(?P<local>.*)(?P<sign>[-+])(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)$"
_NEVER: Final = r"^(-?[Ii]nfinity|[Nn]a[Nn])$| BC$|^\d{5,}-"
_BEFORE: Final = r"^-[Ii]nfinity$| BC$"
_AFTER: Final = r"^[Ii]nfinity$|^\d{5,}-.*[^C]$"

_ESCAPED: Final = re.compile(r"(?:[^\\]|\\\\|\\[0-3][0-7]{2})*", re.DOTALL)
_ESCAPE: Final = re.compile(rb"\\(\\|[0-3][0-7]{2})")
_ELEMENT: Final = re.compile(
    r'"((?:[^"\\]|\\.)*)"|((?:[^"\\{}, \t\n\r\v\f]|\\.)+)', re.DOTALL
)  # quoted or plain
_BACKSLASHED: Final = re.compile(r"\\(.)", re.DOTALL)

_BLANK: Final = np.zeros(256, np.bool_)
_BLANK[list(b" \t\n\r\v\f")] = True

_HEX: Final = np.full(256, 255, np.uint8)
for _digit, _byte in enumerate(b"0123456789abcdef"):
    _HEX[_byte] = _digit
for _digit, _byte in enumerate(b"ABCDEF", 10):
    _HEX[_byte] = _digit


class Unrepresentable(ValueError):  # noqa: N818 - it is a finding; the caller makes the error
    """The type cannot hold the value at ``index``. Carries no value."""

    def __init__(self, index: int) -> None:
        super().__init__(f"value {index} cannot be represented")
        self.index = index


_MISFITS: Final = (Unrepresentable, pa.ArrowInvalid, UnicodeDecodeError)
"""The errors of a reader for a value that does not fit."""


def typed(
    strings: Any, type: Any, *, null_unrepresentable: bool = False, clamp: bool = False
) -> Any:
    """Read text as values of ``type``.

    ``strings`` is a string or large_string array; the result has equal length. Supported types:
    bool, integers, float32/64, decimal128, string, large_string, binary, large_binary, date32,
    timestamp(us) with and without UTC, and lists of these types. Raises ``Unrepresentable`` with
    the first row that does not fit; ``null_unrepresentable`` makes the value NULL instead. With
    ``clamp`` a date or timestamp before or after all values of the type is the first or last one.
    Raises ``TypeError`` for an unsupported type.
    """
    reader = _clamping(type) if clamp else _reader(type)
    try:
        return reader(strings, type)
    except _MISFITS:
        if not null_unrepresentable:
            raise Unrepresentable(_first_bad(reader, strings, type)) from None
    hopeless = _hopeless(strings, type)
    if hopeless is not None:
        strings = pc.if_else(hopeless, pa.scalar(None, strings.type), strings)
    parts: list[Any] = []
    _null_bad(reader, strings, type, parts)
    return pa.concat_arrays(parts)


def _reader(type: Any) -> Any:
    """The function (strings, type) → array that raises if a value does not fit."""
    for test, reader in _READERS:
        if test(type):
            return reader
    raise TypeError(f"no text form is known for {type}")


def _clamping(type: Any) -> Any:
    """``_reader``; for dates and timestamps, and lists of them, one that raises for no moment."""
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        return lambda strings, type: _list(strings, type, clamp=True)
    return _clamped if pa.types.is_date32(type) or pa.types.is_timestamp(type) else _reader(type)


def _clamped(strings: Any, type: Any) -> Any:
    """Dates or timestamps, with the first and last value for what is before and after."""
    before, after = (
        pc.fill_null(pc.match_substring_regex(strings, each), False) for each in (_BEFORE, _AFTER)
    )
    rest = pc.if_else(pc.or_(before, after), pa.scalar(None, strings.type), strings)
    values = rest.cast(type) if pa.types.is_date32(type) else _moments(rest, type)
    width = pa.int32() if pa.types.is_date32(type) else pa.int64()
    ends = (_FIRST_DAY, _LAST_DAY) if width == pa.int32() else (_FIRST_INSTANT, _LAST_INSTANT)
    first, last = (pa.scalar(each, width) for each in ends)
    numbers = pc.if_else(before, first, pc.if_else(after, last, values.view(width)))
    numbers = pc.max_element_wise(numbers, first, skip_nulls=False)
    return pc.min_element_wise(numbers, last, skip_nulls=False).view(type)


def _fits(reader: Any, strings: Any, type: Any) -> Any:
    """The typed array, or None if a value does not fit."""
    try:
        return reader(strings, type)
    except _MISFITS:
        return None


def _first_bad(reader: Any, strings: Any, type: Any) -> int:
    """Find the first row that does not fit, by halving; ``strings`` must contain such a row."""
    low, high = 0, len(strings)
    while high - low > 1:
        middle = (low + high) // 2
        if _fits(reader, strings.slice(low, middle - low), type) is None:
            high = middle
        else:
            low = middle
    return low


def _null_bad(reader: Any, strings: Any, type: Any, parts: list[Any]) -> None:
    """Append typed pieces of ``strings`` with NULL for values that do not fit, by halving."""
    array = _fits(reader, strings, type)
    if array is not None:
        parts.append(array)
    elif len(strings) == 1:
        parts.append(pa.nulls(1, type))
    else:
        half = len(strings) // 2
        _null_bad(reader, strings.slice(0, half), type, parts)
        _null_bad(reader, strings.slice(half), type, parts)


def _hopeless(strings: Any, type: Any) -> Any:
    """A mask of rows that certainly do not fit: they need no search by halving."""
    if pa.types.is_decimal(type):
        fits = pc.match_substring_regex(strings, _decimal_form(type))
        number = pc.match_substring_regex(strings, r"^[-+]?\d+(\.\d*)?$|^NaN$|^-?Infinity$")
        return pc.fill_null(pc.and_not(number, fits), False)
    if pa.types.is_temporal(type):
        return pc.fill_null(pc.match_substring_regex(strings, _NEVER), False)
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        return pc.fill_null(pc.match_substring_regex(strings, r"^[^{]|^\{\{"), False)
    return None


def _cast(strings: Any, type: Any) -> Any:
    return strings.cast(type)


def _bool(strings: Any, type: Any) -> Any:
    values = pc.equal(strings, "t")
    fits = pc.or_(values, pc.equal(strings, "f"))
    if pc.all(fits).as_py() is False:
        raise Unrepresentable(-1)
    return values


def _float(strings: Any, type: Any) -> Any:
    """Floats; Arrow reads too large values as infinity and too small values as zero: no fit."""
    values = strings.cast(type)
    numbers = values.to_numpy(zero_copy_only=False)  # NULL is NaN here
    infinite = np.flatnonzero(np.isinf(numbers))
    if len(infinite):
        words = strings.take(pa.array(infinite))
        if not pc.all(pc.match_substring_regex(words, "^[-+]?[iI]")).as_py():
            raise Unrepresentable(-1)
    zero = np.flatnonzero(numbers == 0)
    if len(zero):
        words = strings.take(pa.array(zero))
        if not pc.all(pc.match_substring_regex(words, _ZERO)).as_py():
            raise Unrepresentable(-1)
    return values


def _decimal(strings: Any, type: Any) -> Any:
    """Decimals; Arrow refuses to lose digits, but an overflow of 128 bits goes unnoticed.

    No overflow can happen while the digits, with the zeros up to the scale, are at most 38. Longer
    texts are first cut to the digits of the type, or do not fit.
    """
    longest = pc.max(pc.binary_length(strings)).as_py() or 0
    if longest + type.scale <= _DIGITS:
        return strings.cast(type)
    long = pc.fill_null(pc.greater(pc.binary_length(strings), _DIGITS - type.scale), False)
    text = strings.type
    parts = pc.extract_regex(strings.filter(long), _decimal_form(type))
    if parts.null_count:
        raise Unrepresentable(-1)
    short = pc.binary_join_element_wise(
        parts.field("sign").cast(text),
        parts.field("whole").cast(text),
        pa.scalar(".", text),
        parts.field("fraction").cast(text),
        pa.scalar("", text),
    )
    return pc.replace_with_mask(strings, long, short).cast(type)


def _decimal_form(type: Any) -> str:
    """The pattern of a decimal of ``type``; the groups match only digits that the type can hold."""
    whole, fraction = type.precision - type.scale, type.scale
    return (
        rf"^(?P<sign>[-+]?)0*?(?P<whole>0?\d{{0,{whole}}})"
        rf"(?:\.(?P<fraction>\d{{0,{fraction}}})0*)?$"
    )


def _string(strings: Any, type: Any) -> Any:
    strings.validate(full=True)  # with SQL_ASCII PostgreSQL lets any bytes through
    return strings if strings.type == type else strings.cast(type)


def _date(strings: Any, type: Any) -> Any:
    values = strings.cast(type)
    first = pc.min(values.view(pa.int32())).as_py()
    if first is not None and first < _FIRST_DAY:
        raise Unrepresentable(-1)
    return values


def _timestamp(strings: Any, type: Any) -> Any:
    values = _moments(strings, type)
    bounds = pc.min_max(values.view(pa.int64()))
    first, last = bounds["min"].as_py(), bounds["max"].as_py()
    if first is not None and (first < _FIRST_INSTANT or last > _LAST_INSTANT):
        raise Unrepresentable(-1)
    return values


def _moments(strings: Any, type: Any) -> Any:
    """Timestamps, of any year that Arrow reads."""
    try:
        return strings.cast(type)
    except pa.ArrowInvalid:
        if type.tz is None:  # of a timestamptz, as sent: the moment in UTC
            if pc.all(pc.ends_with(strings, "+00")).as_py() is not True:
                raise
            return pc.utf8_slice_codeunits(strings, 0, -len("+00")).cast(type)
        utc, shift = _without_seconds_zone(strings)
        return pc.subtract(utc.cast(type).view(pa.int64()), shift).view(type)


def _without_seconds_zone(strings: Any) -> tuple[Any, Any]:
    """Rewrite ``…+HH:MM:SS`` (local mean time of old dates) as ``…Z`` and µs to subtract."""
    mask = pc.fill_null(pc.match_substring_regex(strings, _SECONDS_ZONE), False)
    parts = pc.extract_regex(strings.filter(mask), _SECONDS_ZONE)
    seconds = np.zeros(len(parts), np.int64)
    for name, unit in (("h", 3600), ("m", 60), ("s", 1)):
        number = parts.field(name).cast(pa.int64()).to_numpy(zero_copy_only=False)
        seconds += number * unit
    sign = pc.equal(parts.field("sign"), "-").to_numpy(zero_copy_only=False)
    shift = np.zeros(len(strings), np.int64)
    where = mask.to_numpy(zero_copy_only=False)
    shift[where] = np.where(sign, -seconds, seconds) * 1_000_000
    text = strings.type
    local = pc.binary_join_element_wise(
        parts.field("local").cast(text), pa.scalar("Z", text), pa.scalar("", text)
    )
    return pc.replace_with_mask(strings, mask, local), pa.array(shift)


def _binary(strings: Any, type: Any) -> Any:
    """``\\x`` and hex digits; with ``bytea_output = escape`` a chunk is read row by row."""
    if pc.all(pc.starts_with(strings, "\\x")).as_py() is False:
        return pa.array([_bytea(value) for value in strings.to_pylist()], type)
    dense, valid = _dense(strings)
    offsets, data = _buffers(dense)
    sizes = np.diff(offsets) // 2 - 1
    digits = np.ones(len(data), np.bool_)
    digits[offsets[:-1]] = digits[offsets[:-1] + 1] = False
    nibbles = _HEX[data[digits]]
    if np.any(np.diff(offsets) & 1) or np.any(nibbles == 255):
        raise Unrepresentable(-1)
    content = nibbles[0::2] << 4 | nibbles[1::2]
    return _sparse(_from_sizes(sizes, content, pa.large_binary()).cast(type), valid)


def _bytea(value: str | None) -> bytes | None:
    """A bytea in hex or escape form."""
    if value is None:
        return None
    if value.startswith("\\x"):
        digits = _HEX[np.frombuffer(value[2:].encode(), np.uint8)]
        if len(digits) & 1 or np.any(digits == 255):
            raise Unrepresentable(-1)
        return (digits[0::2] << 4 | digits[1::2]).tobytes()
    if not _ESCAPED.fullmatch(value):
        raise Unrepresentable(-1)
    return _ESCAPE.sub(_unescape, value.encode())


def _unescape(match: re.Match[bytes]) -> bytes:
    return b"\\" if match[1] == b"\\" else bytes([int(match[1], 8)])


def _list(strings: Any, type: Any, *, clamp: bool = False) -> Any:
    """A one-dimensional array; rows with a backslash are read one by one, all further together."""
    dense, valid = _dense(strings)
    escaped = pc.match_substring(dense, "\\")
    if pc.any(escaped).as_py():
        lists = [_elements(value) for value in dense.filter(escaped).to_pylist()]
        slow = pa.array(lists, pa.large_list(pa.large_string()))
        quick = _split(dense.filter(pc.invert(escaped)))
        mask = escaped.to_numpy(zero_copy_only=False)
        order = np.where(mask, len(quick) + np.cumsum(mask) - 1, np.cumsum(~mask) - 1)
        lists = pa.concat_arrays([quick, slow]).take(pa.array(order))
    else:
        lists = _split(dense)
    values = typed(lists.flatten(), type.value_type, clamp=clamp)
    large = pa.types.is_large_list(type)
    offsets = lists.offsets if large else lists.offsets.cast(pa.int32())
    builder = pa.LargeListArray if large else pa.ListArray
    return _sparse(builder.from_arrays(offsets, values, type=type), valid)


def _split(strings: Any) -> Any:
    """Arrays without a backslash as large_list<large_string>: quotes only delimit."""
    offsets, data = _buffers(strings)
    first, last = offsets[:-1], offsets[1:] - 1
    quote = data == ord('"')
    inside = np.bitwise_xor.accumulate(quote.view(np.uint8)).view(np.bool_)
    outside = ~inside
    brace = ((data == ord("{")) | (data == ord("}"))) & outside
    comma = (data == ord(",")) & outside
    shaped = np.all(last > first) and np.all(data[first] == ord("{"))
    shaped = shaped and np.all(data[last] == ord("}")) and np.all(brace[last])
    if not shaped or np.count_nonzero(brace) != 2 * len(strings):
        raise Unrepresentable(-1)
    if np.any(_BLANK[data] & outside):
        raise Unrepresentable(-1)
    commas = np.flatnonzero(comma)
    filled = last > first + 1
    starts = np.sort(np.concatenate([first[filled], commas]), kind="stable") + 1
    ends = np.sort(np.concatenate([last[filled], commas]), kind="stable")
    quoted = np.zeros(len(starts), np.bool_)
    solid = starts < ends
    quoted[solid] = quote[starts[solid]]
    sizes = ends - starts - 2 * quoted
    if (
        not np.all(quote[ends[quoted] - 1])
        or np.any(sizes + quoted <= 0)
        or np.count_nonzero(quote) != 2 * np.count_nonzero(quoted)
    ):
        raise Unrepresentable(-1)
    counts = np.searchsorted(commas, last) - np.searchsorted(commas, first) + filled
    bounds = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=bounds[1:])
    texts = _from_sizes(sizes, data[~(quote | brace | comma)], pa.large_string())
    null = pc.and_(pc.equal(texts, "NULL"), pa.array(~quoted))
    texts = pc.if_else(null, pa.scalar(None, texts.type), texts)
    array: Any = pa.LargeListArray
    return array.from_arrays(pa.array(bounds), texts)


def _elements(value: str) -> list[str | None]:
    """The elements of an array, with escapes resolved."""
    if not value.startswith("{") or not value.endswith("}"):
        raise Unrepresentable(-1)
    body = value[1:-1]
    if not body:
        return []
    elements: list[str | None] = []
    at = 0
    while True:
        match = _ELEMENT.match(body, at)
        if match is None:
            raise Unrepresentable(-1)
        quoted, plain = match.groups()
        if quoted is not None:
            elements.append(_BACKSLASHED.sub(r"\1", quoted))
        else:
            elements.append(None if plain == "NULL" else _BACKSLASHED.sub(r"\1", plain))
        at = match.end()
        if at == len(body):
            return elements
        if body[at] != ",":
            raise Unrepresentable(-1)
        at += 1


def _dense(strings: Any) -> tuple[Any, npt.NDArray[np.bool_] | None]:
    """``strings`` without the NULLs, and the places of the values (None for all places)."""
    if not strings.null_count:
        return strings, None
    return strings.drop_null(), strings.is_valid().to_numpy(zero_copy_only=False)


def _sparse(values: Any, valid: npt.NDArray[np.bool_] | None) -> Any:
    """Undo ``_dense``."""
    if valid is None:
        return values
    return values.take(pa.array(np.cumsum(valid) - 1, mask=~valid))


def _buffers(strings: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Offsets from 0 and the bytes of a string array without NULLs."""
    width = np.int64 if pa.types.is_large_string(strings.type) else np.int32
    _, offsets, data = strings.buffers()
    if not len(strings) or data is None:
        return np.zeros(len(strings) + 1, np.int64), np.empty(0, np.uint8)
    bounds = np.frombuffer(offsets, width)[strings.offset : strings.offset + len(strings) + 1]
    content = np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]
    return bounds.astype(np.int64) - int(bounds[0]), content


def _from_sizes(sizes: npt.NDArray[np.int64], data: Any, type: Any) -> Any:
    """A large_string or large_binary array from value sizes and their bytes."""
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    py_buffer: Any = pa.py_buffer
    buffers = [None, py_buffer(offsets), py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(type, len(sizes), buffers)


_READERS: Final[tuple[tuple[Any, Any], ...]] = (
    (pa.types.is_boolean, _bool),
    (pa.types.is_integer, _cast),
    (pa.types.is_floating, _float),
    (pa.types.is_decimal128, _decimal),
    (pa.types.is_string, _string),
    (pa.types.is_large_string, _string),
    (pa.types.is_binary, _binary),
    (pa.types.is_large_binary, _binary),
    (pa.types.is_date32, _date),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_list, _list),
    (pa.types.is_large_list, _list),
)
