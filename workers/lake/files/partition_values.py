"""Compute partitions and sort keys of rows, as Iceberg's specification defines the transforms.

All rows of a batch are computed at once. ``split`` gives the rows of each partition, with the
partition's values in the JSON form in which Iceberg writes single values. NULL stays NULL in every
transform. ``bucket`` is the Murmur3 hash of 32 bits, of the value as the specification encodes it.

Trace: ``days(at)`` of 1970-01-02 03:00, NULL, 1970-01-02 05:00 is 1, NULL, 1. The rows go to two
partitions: ``{"1000": "1970-01-02"}`` with two rows, and ``{}`` with the row of the NULL.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from workers.lake.metadata.partitioning import PartitionSpec, SortField, Transform
from workers.lake.staged_rows import Place

_DAY_US: Final = 86_400_000_000
_HOUR_US: Final = 3_600_000_000
_Words = npt.NDArray[np.uint32]
_Int64 = npt.NDArray[np.int64]


def split(
    spec: PartitionSpec, schema: pa.Schema, rows: pa.RecordBatch
) -> Iterator[tuple[Place, pa.RecordBatch]]:
    """Yield the rows of each partition with the partition. The order of the rows is kept."""
    columns = [_column(rows, schema, each.source_id, each.transform) for each in spec.fields]
    codes = np.zeros(rows.num_rows, np.int64)
    dictionaries = []
    for column in columns:
        encoded: Any = pc.dictionary_encode(column, null_encoding="encode")
        codes *= max(1, len(encoded.dictionary))
        codes += encoded.indices.to_numpy(zero_copy_only=False)
        dictionaries.append((encoded.indices, encoded.dictionary))
        codes = np.unique(codes, return_inverse=True)[1].reshape(-1)  # small, so no overflow
    groups, first = np.unique(codes, return_index=True)
    places = []
    for row in first:
        values = {}
        for field, (indices, known) in zip(spec.fields, dictionaries, strict=True):
            value = _single_value(field.transform, known[indices[int(row)].as_py()])
            if value is not None:
                values[str(field.field_id)] = value
        places.append(place_of(spec.spec_id, values))
    if len(groups) == 1:
        yield places[0], rows
        return
    order = np.argsort(codes, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=len(groups)))])
    for n, place in enumerate(places):
        # No slice of all rows: a few waiting rows would hold the memory of the batch.
        mine: Any = pa.array(order[bounds[n] : bounds[n + 1]])
        yield place, rows.take(mine)


def place_of(spec_id: int, values: Mapping[str, Any]) -> Place:
    """A place with values by field id; a NULL has no entry."""
    return Place(spec_id, json.dumps(values, sort_keys=True, separators=(",", ":")))


def in_order(order: Sequence[SortField], schema: pa.Schema, rows: pa.Table) -> pa.Table:
    """The rows in the table's sort order."""
    if not order:
        return rows
    keys: dict[str, Any] = {}
    by: list[tuple[str, Any]] = []
    for n, each in enumerate(order):
        column = _column(rows, schema, each.source_id, each.transform)
        if column.null_count:
            keys[f"n{n}"] = column.is_null().cast(pa.int8())
            by.append((f"n{n}", "descending" if each.nulls_first else "ascending"))
        keys[f"k{n}"] = column
        by.append((f"k{n}", "descending" if each.descending else "ascending"))
    return rows.take(pc.sort_indices(pa.table(keys), sort_keys=by))


def _column(rows: Any, schema: pa.Schema, source_id: int, transform: Transform) -> Any:
    number = str(source_id).encode()
    ids = [(each.metadata or {}).get(b"PARQUET:field_id") for each in schema]
    at = ids.index(number)
    column = rows.column(at)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return transformed(column, transform)


def transformed(column: Any, transform: Transform) -> Any:
    """The transform of all values. Days are dates; years, months and hours count from 1970."""
    match transform.kind:
        case "identity":
            return column
        case "void":
            return pa.nulls(len(column), column.type)
        case "bucket":
            return _bucket(column, transform.width)
        case "truncate":
            return _truncate(column, transform.width)
        case "hour":
            return _with_nulls(_whole(column) // _HOUR_US, pa.int32(), column)
    days = _whole(column)
    if pa.types.is_timestamp(column.type):
        days = days // _DAY_US
    if transform.kind == "day":
        return _with_nulls(days, pa.int32(), column).cast(pa.date32())
    unit = "datetime64[M]" if transform.kind == "month" else "datetime64[Y]"
    since = days.astype("datetime64[D]").astype(unit).astype(np.int64)
    return _with_nulls(since, pa.int32(), column)


def _whole(column: Any) -> _Int64:
    """The numbers behind integers, dates and timestamps; 0 for NULL."""
    small = pa.types.is_date32(column.type)
    numbers = column.view(pa.int32()).cast(pa.int64()) if small else column.cast(pa.int64())
    found: _Int64 = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    return found


def _with_nulls(numbers: Any, type: pa.DataType, column: Any) -> Any:
    mask = None if not column.null_count else column.is_null().to_numpy(zero_copy_only=False)
    # As in Java, a number below the least one goes round.
    return pa.array(numbers, pa.int64(), mask=mask).cast(type, safe=False)


# -- truncate -------------------------------------------------------------------------------------


def _truncate(column: Any, width: int) -> Any:
    if pa.types.is_string(column.type):
        return pc.utf8_slice_codeunits(column, 0, width)
    if pa.types.is_binary(column.type):
        return pc.binary_slice(column, 0, width)
    if pa.types.is_integer(column.type):
        numbers = _whole(column)
        return _with_nulls(numbers - numbers % width, column.type, column)
    low, high = _halves(column)
    # 2^64 * high + low, modulo the width: all products fit, because a width has 31 bits.
    above = (high % width) * (2**64 % width) % width
    rest = ((above + (low % np.uint64(width)).astype(np.int64)) % width).astype(np.uint64)
    pairs = np.empty((len(low), 2), np.uint64)
    pairs[:, 0] = low - rest
    pairs[:, 1] = (high - (low < rest)).view(np.uint64)
    valid = None if not column.null_count else column.is_valid().buffers()[1]
    return pa.Array.from_buffers(column.type, len(low), [valid, pa.py_buffer(pairs.tobytes())])


def _halves(column: Any) -> tuple[npt.NDArray[np.uint64], _Int64]:
    """The lower and the upper 64 bits of decimals."""
    raw = np.frombuffer(column.buffers()[1], np.int64, 2 * (len(column) + column.offset))
    pairs = raw[2 * column.offset :].reshape(-1, 2)
    return pairs[:, 0].view(np.uint64), pairs[:, 1]


# -- bucket ---------------------------------------------------------------------------------------

_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_M1, _M2 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)


def _bucket(column: Any, count: int) -> Any:
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        hashes = _hash_bytes(*_bytes_of(column))
    elif pa.types.is_decimal128(column.type):
        hashes = _hash_bytes(*_decimal_bytes(column))
    else:
        words = _whole(column).view(np.uint64)
        state = _mixed(np.zeros(len(words), np.uint32), words.astype(np.uint32))
        state = _mixed(state, (words >> np.uint64(32)).astype(np.uint32))
        hashes = _finished(state, np.full(len(words), 8, np.uint32))
    numbers = (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % count
    return _with_nulls(numbers, pa.int32(), column)


def _bytes_of(column: Any) -> tuple[npt.NDArray[np.uint8], _Int64, _Int64]:
    """The bytes of all values, and where each value begins and how long it is."""
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(column) + column.offset + 1)[column.offset :]
    raw = np.frombuffer(data or b"", np.uint8)
    starts = bounds[:-1].astype(np.int64)
    return raw, starts, bounds[1:].astype(np.int64) - starts


def _decimal_bytes(column: Any) -> tuple[npt.NDArray[np.uint8], _Int64, _Int64]:
    """The fewest bytes of each unscaled value in two's complement, the highest byte first."""
    low, high = _halves(column)
    raw = np.empty((len(column), 16), np.uint8)
    raw[:, :8] = high.astype(">i8").view(np.uint8).reshape(-1, 8)
    raw[:, 8:] = low.astype(">u8").view(np.uint8).reshape(-1, 8)
    sign = np.where(high < 0, 0xFF, 0).astype(np.uint8)
    # A leading byte is dropped if it repeats the sign, and so does the highest bit behind it.
    idle = (raw[:, :15] == sign[:, None]) & ((raw[:, 1:] >> 7) == (sign[:, None] >> 7))
    dropped = np.cumprod(idle, axis=1).sum(axis=1).astype(np.int64)
    starts = np.arange(len(column), dtype=np.int64) * 16 + dropped
    return raw.reshape(-1), starts, 16 - dropped


def _hash_bytes(raw: npt.NDArray[np.uint8], starts: _Int64, sizes: _Int64) -> _Words:
    """Murmur3 of many values: the first four bytes of all, then the next four of those left."""
    state = np.zeros(len(starts), np.uint32)
    by_size = np.argsort(-sizes, kind="stable")
    ordered = sizes[by_size]
    padded = np.concatenate([raw, np.zeros(4, np.uint8)])
    words, step = ordered // 4, 0
    left = int(np.count_nonzero(words > 0))
    while left:
        some = by_size[:left]
        state[some] = _mixed(state[some], _word(padded, starts[some] + 4 * step))
        step += 1
        left = int(np.searchsorted(-words, -step, side="left"))
    tails = np.flatnonzero(sizes % 4)
    mask = (np.uint32(1) << (8 * (sizes[tails] % 4)).astype(np.uint32)) - np.uint32(1)
    rest = _word(padded, starts[tails] + sizes[tails] // 4 * 4) & mask
    state[tails] ^= _scrambled(rest)
    return _finished(state, sizes.astype(np.uint32))


def _word(raw: npt.NDArray[np.uint8], at: _Int64) -> _Words:
    found = np.zeros(len(at), np.uint32)
    for n in range(4):
        found |= raw[at + n].astype(np.uint32) << np.uint32(8 * n)
    return found


def _turned(words: _Words, bits: int) -> _Words:
    turned: _Words = (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
    return turned


def _scrambled(words: _Words) -> _Words:
    return _turned(words * _C1, 15) * _C2


def _mixed(state: _Words, words: _Words) -> _Words:
    mixed: _Words = _turned(state ^ _scrambled(words), 13) * np.uint32(5) + np.uint32(0xE6546B64)
    return mixed


def _finished(state: _Words, sizes: _Words) -> _Words:
    state = state ^ sizes
    state = (state ^ (state >> np.uint32(16))) * _M1
    state = (state ^ (state >> np.uint32(13))) * _M2
    return state ^ (state >> np.uint32(16))


# -- single values in JSON ------------------------------------------------------------------------


def _single_value(transform: Transform, value: Any) -> Any:
    """A transformed value in the form in which Iceberg writes single values; None for NULL."""
    if not value.is_valid or transform.kind == "void":
        return None
    type = value.type
    if pa.types.is_date32(type):
        return _years(str(np.datetime64(value.value, "D")))
    if pa.types.is_timestamp(type):
        text = _years(str(np.datetime64(value.value, "us")))
        return text if type.tz is None else f"{text}+00:00"
    if pa.types.is_decimal128(type):
        return f"{value.as_py():f}"
    if pa.types.is_binary(type):
        return value.as_py().hex().upper()
    return value.as_py()


def _years(text: str) -> str:
    """ISO 8601 wants a sign before a year of more than four digits."""
    year = text.partition("-")[0]
    return f"+{text}" if len(year) > 4 else text
