"""Row images: the distinct whole rows of a segment, and the assignment of existing rows to them.

Under REPLICA IDENTITY FULL a row is found by all columns. Every old and new row of the segment is
an *image*, an integer; two rows have one image if the lake would call the rows equal (NULL equals
NULL). Most types have a single form for each value, so bytes distinguish images. For types with
several forms (a decimal sent as 1.0 and as 1.00, -0 and 0, values that become NULL) the typed
values decide; otherwise the lake's answer could give one stored row to two images.

Trace: numeric columns, U (1.0)→(2), D (1.00)::

    bytes "1.0", "2", "1.00"      images 0, 1, 2
    typed values                  image 2 becomes 0: the DELETE looks for a row equal to (1.0)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from workers.columnar.binary import scalars as scalars
from workers.columnar.column_reader import (
    Changes,
    ColumnReader,
    Layout,
    MappedColumn,
    kernel_error,
    root_of,
)
from workers.columnar.fold.key_table import hash_row, new_table, same_row
from workers.columnar.kernel import kernel
from workers.columnar.tuples import (
    DELETE,
    INSERT,
    OLD_MISSING,
    VALUE_MISSING,
    be16,
    place_row,
    readonly,
)

_O: Final = np.uint8(ord("O"))
_ZERO, _NINE, _DOT, _MINUS = (np.uint8(ord(byte)) for byte in "09.-")
_33: Final = np.uint64(33)

# The rule by which a kernel sees that a value has a single form; from 0 on: a decimal's scale.
_ONE_WAY: Final = -1
_UNKNOWN: Final = -2
_INTEGER: Final = -3
_INSTANT: Final = -4
_ZONED: Final = -5
_NUMERIC: Final = -6  # in binary form; minus the column's scale

_DSCALE: Final = 6  # the place of the scale in a numeric

_SENT_ONE_WAY: Final = (
    scalars.INT2,
    scalars.INT4,
    scalars.INT8,
    scalars.BOOL,
    scalars.TIMESTAMP,
    scalars.TIMESTAMPTZ,
    scalars.DATE,
    scalars.UUID,
    scalars.VERSIONED,
    scalars.BYTEA,
)
"""Kinds whose values have a single binary form."""


def intern_images(
    changes: Changes, layout: Layout
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """The image of each change's old and new row (-1: no row), and a ref for each image."""
    count = len(changes)
    reader = ColumnReader(changes, layout, layout.columns)
    width = len(layout.columns)
    image_of = np.full((count, 2), -1, np.int32)
    refs = np.empty(2 * count, np.int64)
    odd = np.zeros(width, np.bool_)
    forms = np.array([_form(changes, layout, column) for column in layout.columns])
    state = np.zeros(3, np.int64)
    images = (image_of, refs, new_table(2 * count), forms.astype(np.int64), odd)
    scratch = _scratch(width)
    buf = readonly(changes.buf)
    _intern(buf, changes.kind, reader.arrays, reader.slots, images, scratch, state)
    if state[0]:
        raise kernel_error(int(state[0]), int(state[1]))
    refs = refs[: int(state[2])].copy()
    if not odd.any():
        return image_of, refs
    return _united(changes, layout, odd, image_of, refs)


def _scratch(width: int) -> tuple[Any, Any, Any]:
    """Room for two placed rows, and an empty ``prev``."""
    return np.empty((width, 2), np.int64), np.empty((width, 2), np.int32), np.empty(0, np.int32)


def _form(changes: Changes, layout: Layout, column: MappedColumn) -> int:
    """The rule by which a column's bytes are known to be the single form of a value."""
    if column.clamp:
        return _UNKNOWN  # several values have one number
    type: Any = column.type
    root = root_of(changes.nodes, column.ordinal)
    if root >= 0 and changes.nodes is not None:
        kind = int(changes.nodes.table[root, 0])
        if kind != scalars.TEXT:  # text is sent unchanged, and the lake's column may be a number
            return _binary_form(kind, type, layout.null_unrepresentable)
    if pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_boolean(type):
        return _ONE_WAY
    if layout.null_unrepresentable:
        return _UNKNOWN
    if pa.types.is_decimal(type):
        return int(type.scale)
    if pa.types.is_integer(type):
        return _INTEGER
    if pa.types.is_timestamp(type):
        return _INSTANT if type.tz is None else _ZONED
    if pa.types.is_date(type) or pa.types.is_binary(type) or pa.types.is_large_binary(type):
        return _ONE_WAY
    return _UNKNOWN


def _binary_form(kind: int, type: Any, null_unrepresentable: bool) -> int:
    if null_unrepresentable:
        return _UNKNOWN
    if kind == scalars.NUMERIC and pa.types.is_decimal(type):
        return int(_NUMERIC - type.scale)
    if pa.types.is_floating(type):
        return _UNKNOWN  # several large integers have one number
    if kind == scalars.VERSIONED and not pa.types.is_string(type):
        return _UNKNOWN  # 1.0 and 1.00 are two texts of one jsonb value
    return _ONE_WAY if kind in _SENT_ONE_WAY else _UNKNOWN


def _united(
    changes: Changes,
    layout: Layout,
    odd: npt.NDArray[np.bool_],
    image_of: npt.NDArray[np.int32],
    refs: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Unite images with equal values in the ``odd`` columns and equal bytes in the rest."""
    plain = [column for column, mark in zip(layout.columns, odd, strict=True) if not mark]
    typed = [column for column, mark in zip(layout.columns, odd, strict=True) if mark]
    codes = np.stack([_codes(changes, layout, column, refs) for column in typed])
    reader = ColumnReader(changes, layout, plain)
    same = np.empty(len(refs), np.int32)
    firsts = np.empty(len(refs), np.int64)
    scratch = _scratch(len(plain))
    buf = readonly(changes.buf)
    table = new_table(len(refs))
    found = _unite(buf, reader.arrays, reader.slots, refs, codes, table, same, firsts, scratch)
    image_of = np.where(image_of >= 0, same[image_of], np.int32(-1))
    return image_of, refs[firsts[:found]]


def _codes(
    changes: Changes, layout: Layout, column: MappedColumn, refs: npt.NDArray[np.int64]
) -> npt.NDArray[np.int32]:
    """A number per ref, equal for equal typed values; -1 is NULL.

    A value that does not fit the type is compared as text: reading the value raises the error.
    """
    lenient = replace(layout, key=(), null_unrepresentable=True)
    codes = value_codes(_read(lenient, changes, column, refs))
    if layout.null_unrepresentable or codes.min() >= 0:
        return codes
    texts = _read(layout, changes, replace(column, type=pa.large_string()), refs)
    by_text = _numbered(texts.combine_chunks())
    lost = (codes < 0) & (by_text >= 0)
    codes[lost] = by_text[lost] + len(refs)
    return codes


def value_codes(values: Any) -> npt.NDArray[np.int32]:
    """A number per value of a chunked array, equal for values that the lake calls equal.

    The numbers count from 0 in the order of first appearance; -1 is NULL.
    """
    type: Any = values.type
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        keys: Any = pa.array([_canonical(value) for value in values.to_pylist()], pa.large_string())
    elif pa.types.is_floating(type):
        numbers = values.to_numpy(zero_copy_only=False) + 0.0  # -0.0 becomes 0.0
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        keys = pa.array(numbers, type, mask=~valid)
    else:
        keys = values.combine_chunks()
    return _numbered(keys)


def _read(
    layout: Layout, changes: Changes, column: MappedColumn, refs: npt.NDArray[np.int64]
) -> Any:
    """A column of all refs, chunked."""
    reader = ColumnReader(changes, layout, [column])
    type: Any = column.type
    return pa.chunked_array([arrays[0] for _, arrays, _ in reader.chunks(refs)], type)


def _numbered(values: Any) -> npt.NDArray[np.int32]:
    indices = values.dictionary_encode().indices.fill_null(-1)
    numbers: npt.NDArray[np.int32] = indices.to_numpy(zero_copy_only=False).astype(np.int32)
    return numbers


def _canonical(value: list[Any] | None) -> str | None:
    if value is None:
        return None
    return repr([item + 0.0 if isinstance(item, float) else item for item in value])


@kernel
def _intern(
    buf: Any, kind: Any, changes: Any, slots: Any, images: Any, scratch: Any, state: Any
) -> None:
    image_of = images[0]
    for change in range(len(kind)):
        for which in range(2):
            if (which == 0 and kind[change] == INSERT) or (which == 1 and kind[change] == DELETE):
                continue
            if kind[change] != INSERT and changes[0][change] != _O:
                state[0], state[1] = OLD_MISSING, change
                return
            ref = change * 2 + which
            image = _image(buf, changes, slots, ref, images, scratch, state)
            if image < 0:
                state[0], state[1] = -image, change
                return
            image_of[change, which] = image


@kernel
def _image(
    buf: Any, changes: Any, slots: Any, ref: int, images: Any, scratch: Any, state: Any
) -> Any:
    """The image of the row ``ref``, new if necessary, or minus an error code."""
    _, refs, table, forms, odd = images
    loc, length, nothing = scratch
    missing = place_row(buf, changes, nothing, ref, slots, loc, length, 0)
    if missing != 0:
        return missing if missing < 0 else -VALUE_MISSING
    code = hash_row(buf, loc, length, 0)
    mask = table.shape[0] - 1
    tag = np.int32(code >> _33)
    at = np.int64(code & np.uint64(mask))
    while table[at, 0] != 0:
        if table[at, 1] == tag:
            image = np.int64(table[at, 0] - 1)
            place_row(buf, changes, nothing, refs[image], slots, loc, length, 1)
            if same_row(buf, loc, length, 0, 1):
                return image
        at = (at + 1) & mask
    image = state[2]
    state[2] += 1
    refs[image] = ref
    table[at, 0], table[at, 1] = image + 1, tag
    for where in range(len(forms)):
        size = length[where, 0]
        if size >= 0 and not odd[where]:
            odd[where] = not _one_way(buf, loc[where, 0], size, forms[where])
    return image


@kernel
def _one_way(buf: Any, pos: int, size: int, form: int) -> Any:
    """True if the bytes are certainly the single form of the value."""
    if form == _ONE_WAY:
        return True
    if form == _UNKNOWN:
        return False
    if form <= _NUMERIC:  # digits without outer zeros; the scale may differ
        return size > _DSCALE + 1 and be16(buf, pos + _DSCALE) == _NUMERIC - form
    if form in (_INSTANT, _ZONED):
        if form == _ZONED:
            size -= 3
            if size < 0 or buf[pos + size] != ord("+") or buf[pos + size + 1] != _ZERO:
                return False
            if buf[pos + size + 2] != _ZERO:
                return False
        shaped = size == 19 or (size > 20 and buf[pos + size - 1] != _ZERO)
        return shaped and buf[pos + 10] == ord(" ")
    start, end = pos, pos + size
    if start < end and buf[start] == _MINUS:
        start += 1
    scale = max(form, 0)
    whole = end - (scale + 1 if scale > 0 else 0)
    if whole <= start or (buf[start] == _ZERO and whole > start + 1):
        return False
    nonzero = buf[pos] != _MINUS
    for at in range(start, end):
        if at == whole:
            if buf[at] != _DOT:
                return False
            continue
        if buf[at] < _ZERO or buf[at] > _NINE:
            return False
        nonzero |= buf[at] != _ZERO
    return nonzero


@kernel
def _unite(
    buf: Any,
    changes: Any,
    slots: Any,
    refs: Any,
    codes: Any,
    table: Any,
    same: Any,
    firsts: Any,
    scratch: Any,
) -> Any:
    """Renumber images by ``codes`` and the placed columns; return the number of images."""
    loc, length, nothing = scratch
    mask = table.shape[0] - 1
    count = 0
    for image in range(len(refs)):
        place_row(buf, changes, nothing, refs[image], slots, loc, length, 0)
        state = hash_row(buf, loc, length, 0)
        for row in range(codes.shape[0]):
            state = (state ^ np.uint64(codes[row, image] + 2)) * np.uint64(0xD6E8FEB86659FD93)
            state ^= state >> np.uint64(32)
        tag = np.int32(state >> _33)
        at = np.int64(state & np.uint64(mask))
        found = -1
        while table[at, 0] != 0 and found < 0:
            if table[at, 1] == tag:
                other = firsts[table[at, 0] - 1]
                equal = True
                for row in range(codes.shape[0]):
                    equal &= codes[row, image] == codes[row, other]
                if equal:
                    place_row(buf, changes, nothing, refs[other], slots, loc, length, 1)
                    if same_row(buf, loc, length, 0, 1):
                        found = table[at, 0] - 1
            at = (at + 1) & mask
        if found < 0:
            found = count
            firsts[count] = image
            table[at, 0], table[at, 1] = count + 1, tag
            count += 1
        same[image] = found
    return count


@kernel
def count_wanted(kind: Any, image_of: Any, certain: Any, wanted: Any) -> None:
    """The most rows of each image that the fold may take from the table.

    Rows that were certainly made in the segment are taken first, as in ``simulate``; the new row of
    a possibly missing row does not count.
    """
    for change in range(len(kind)):
        old, new = image_of[change, 0], image_of[change, 1]
        sure = True
        if kind[change] != INSERT:
            sure = certain[old] > 0
            if sure:
                certain[old] -= 1
            else:
                wanted[old] += 1
        if kind[change] != DELETE and sure:
            certain[new] += 1


@kernel
def simulate(
    kind: Any, image_of: Any, given: Any, order: Any, pool: Any, rows: Any, state: Any
) -> None:
    """Apply the changes one by one to the rows that exist.

    ``order[given[x]:given[x + 1]]`` are the found rows of image ``x``. ``pool`` (all -1) heads a
    list per image of rows made or changed in the segment. ``rows`` is (found row or -1, last change
    or -1, first image, present image, next in the list); ``state``: rows, missing updates and
    deletes.
    """
    found, last, first_image, image, following = rows
    used = given[:-1].copy()
    for change in range(len(kind)):
        old, new = image_of[change, 0], image_of[change, 1]
        row = state[0]
        if kind[change] == INSERT:
            found[row], first_image[row] = -1, -1
            state[0] += 1
        elif pool[old] >= 0:
            row = pool[old]
            pool[old] = following[row]
        elif used[old] < given[old + 1]:
            found[row], first_image[row] = order[used[old]], old
            used[old] += 1
            state[0] += 1
        else:
            state[2 if kind[change] == DELETE else 1] += 1
            continue
        if kind[change] == DELETE:
            last[row], image[row] = -1, -1
        else:
            last[row], image[row] = change, new
            following[row] = pool[new]
            pool[new] = row
