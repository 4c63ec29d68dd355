"""Write arrays, ranges, multiranges and composites in binary form as text.

A type is a *node*, a row of an int64 table: (kind, first, count, separator). ``first`` is the node
of an array's elements, of a range's bounds or of a multirange's ranges, and the first of ``count``
nodes of a composite's fields. The nesting of nodes is limited by the calls between the functions: a
composite has scalars, ranges and arrays, an array no composites. Types with a deeper nesting have
no node, and a table with such a column cannot be read in binary form.

Only the written text of an element shows whether quotes are necessary. The text is then moved to
make room for the quotes.

Trace: the array {7,"a b",NULL} of text: ``{``, ``7`` needs no quotes, ``a b`` is written, found to
need quotes and moved by one byte, NULL is the word NULL, ``}``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from workers.columnar.binary.numbers import put_signed
from workers.columnar.binary.scalars import put_scalar
from workers.columnar.kernel import inner_kernel
from workers.columnar.tuples import INCORRECT, INSUFFICIENT, NO_ROOM, be32

RANGE: Final = 101
MULTIRANGE: Final = 102
ARRAY: Final = 103
RECORD: Final = 104

NODE_CELLS: Final = 4
_KIND, _FIRST, _COUNT, _SEPARATOR = range(NODE_CELLS)

# The ways to quote an element's text; cells of _SPECIAL.
_IN_ARRAY, _IN_RANGE, _IN_RECORD = range(3)

_EMPTY, _LOWER_INCLUDED, _UPPER_INCLUDED = 1, 2, 4
_NO_LOWER, _NO_UPPER = 8 | 32, 16 | 64

_MOST_DIMENSIONS: Final = 6
_ABSENT: Final = 0xFFFFFFFF  # the length of a NULL
_HEAD: Final = 64  # room for braces, separators, NULL and the bounds of a dimension

_QUOTE, _BACKSLASH, _COMMA, _COLON, _EQUAL = (np.uint8(ord(byte)) for byte in '"\\,:=')
_OPEN, _CLOSE, _SQUARE, _SQUARE_END = (np.uint8(ord(byte)) for byte in "()[]")
_CURLY, _CURLY_END = (np.uint8(ord(byte)) for byte in "{}")
_NULL_WORD: Final = np.frombuffer(b"NULL", np.uint8)
_EMPTY_WORD: Final = np.frombuffer(b"empty", np.uint8)

_SPECIAL: Final = np.zeros((3, 256), np.bool_)
_SPECIAL[:, list(b'"\\ \t\n\r\v\f')] = True
_SPECIAL[_IN_ARRAY, list(b"{}")] = True
_SPECIAL[_IN_RANGE, list(b"()[],")] = True
_SPECIAL[_IN_RECORD, list(b"(),")] = True


@inner_kernel
def _element(nodes: Any, node: int, buf: Any, pos: int, size: int, out: Any, at: int) -> Any:
    kind = nodes[node, _KIND]
    if kind == RANGE:
        return _range(nodes, node, buf, pos, size, out, at)
    if kind == MULTIRANGE:
        return _multirange(nodes, node, buf, pos, size, out, at)
    return put_scalar(kind, buf, pos, size, out, at)


@inner_kernel
def _quoted(out: Any, start: int, at: int, where: int, separator: int) -> Any:
    """Quote the text from ``start`` to ``at`` if necessary; return the new end.

    Arrays escape with a backslash, further containers by doubling. NULL is a word in arrays only.
    """
    needed = start == at
    escapes = 0
    for byte in range(start, at):
        needed |= _SPECIAL[where, out[byte]] or out[byte] == separator
        escapes += out[byte] == _QUOTE or out[byte] == _BACKSLASH
    if where == _IN_ARRAY and at - start == 4:
        null = True
        for byte in range(4):
            null &= out[start + byte] & np.uint8(0xDF) == _NULL_WORD[byte]
        needed |= null
    if not needed:
        return at
    end = at + 2 + escapes
    if end + _HEAD > len(out):
        return -NO_ROOM
    target = end - 1
    out[target] = _QUOTE
    for byte in range(at - 1, start - 1, -1):
        mark = out[byte]
        target -= 1
        out[target] = mark
        if mark in (_QUOTE, _BACKSLASH):
            target -= 1
            out[target] = _BACKSLASH if where == _IN_ARRAY else mark
    out[start] = _QUOTE
    return end


@inner_kernel
def _bound(nodes: Any, node: int, buf: Any, pos: int, end: int, out: Any, at: int) -> Any:
    """Write a bound of a range; return the position after the value and the end of the text."""
    if end - pos < 4:
        return pos, -INSUFFICIENT
    size = be32(buf, pos)
    pos += 4
    if size > end - pos:
        return pos, -INSUFFICIENT
    start = at
    at = put_scalar(nodes[nodes[node, _FIRST], _KIND], buf, pos, size, out, at)
    if at >= 0:
        at = _quoted(out, start, at, _IN_RANGE, -1)
    return pos + size, at


@inner_kernel
def _range(nodes: Any, node: int, buf: Any, pos: int, size: int, out: Any, at: int) -> Any:
    """A range: flags, then the bounds."""
    if size < 1:
        return -INSUFFICIENT
    if at + _HEAD > len(out):
        return -NO_ROOM
    flags = buf[pos]
    end = pos + size
    pos += 1
    if flags & _EMPTY:
        if pos != end:
            return -INCORRECT
        for byte in _EMPTY_WORD:
            out[at] = byte
            at += 1
        return at
    out[at] = _SQUARE if flags & _LOWER_INCLUDED else _OPEN
    at += 1
    if not flags & _NO_LOWER:
        pos, at = _bound(nodes, node, buf, pos, end, out, at)
        if at < 0:
            return at
    if at + _HEAD > len(out):
        return -NO_ROOM
    out[at] = _COMMA
    at += 1
    if not flags & _NO_UPPER:
        pos, at = _bound(nodes, node, buf, pos, end, out, at)
        if at < 0:
            return at
    if pos != end:
        return -INCORRECT
    if at + _HEAD > len(out):
        return -NO_ROOM
    out[at] = _SQUARE_END if flags & _UPPER_INCLUDED else _CLOSE
    return at + 1


@inner_kernel
def _multirange(nodes: Any, node: int, buf: Any, pos: int, size: int, out: Any, at: int) -> Any:
    if size < 4:
        return -INSUFFICIENT
    if at + _HEAD > len(out):
        return -NO_ROOM
    end = pos + size
    count = be32(buf, pos)
    pos += 4
    out[at] = _CURLY
    at += 1
    for number in range(count):
        if end - pos < 4 or be32(buf, pos) > end - pos - 4:
            return -INSUFFICIENT
        if at + _HEAD > len(out):
            return -NO_ROOM
        if number:
            out[at] = _COMMA
            at += 1
        part = be32(buf, pos)
        at = _range(nodes, nodes[node, _FIRST], buf, pos + 4, part, out, at)
        if at < 0:
            return at
        pos += 4 + part
    if pos != end:
        return -INCORRECT
    if at + _HEAD > len(out):
        return -NO_ROOM
    out[at] = _CURLY_END
    return at + 1


@inner_kernel
def _stride(buf: Any, dimensions: int, ndim: int, first: int) -> Any:
    """The number of elements in an item of the dimension before ``first``."""
    elements = 1
    for dimension in range(first, ndim):
        elements *= be32(buf, dimensions + 8 * dimension)
    return elements


@inner_kernel
def _put_bounds(buf: Any, dimensions: int, ndim: int, out: Any, at: int) -> Any:
    """``[2:4]=`` if a lower bound is not 1."""
    plain = True
    for dimension in range(ndim):
        plain &= be32(buf, dimensions + 8 * dimension + 4) == 1
    if plain:
        return at
    for dimension in range(ndim):
        length = be32(buf, dimensions + 8 * dimension)
        lower = be32(buf, dimensions + 8 * dimension + 4)
        if lower >= 0x80000000:
            lower -= 0x100000000
        out[at] = _SQUARE
        at = put_signed(lower, out, at + 1)
        out[at] = _COLON
        at = put_signed(lower + length - 1, out, at + 1)
        out[at] = _SQUARE_END
        at += 1
    out[at] = _EQUAL
    return at + 1


@inner_kernel
def _array(nodes: Any, node: int, buf: Any, pos: int, size: int, out: Any, at: int) -> Any:
    """An array: dimensions, an unused flag, the type; lengths and bounds; elements."""
    if size < 12:
        return -INSUFFICIENT
    if at + _HEAD * (_MOST_DIMENSIONS + 1) > len(out):
        return -NO_ROOM
    end = pos + size
    ndim = be32(buf, pos)
    dimensions = pos + 12
    if ndim > _MOST_DIMENSIONS:
        return -INCORRECT
    if end - dimensions < 8 * ndim:
        return -INSUFFICIENT
    pos = dimensions + 8 * ndim
    count = 1 if ndim else 0
    for dimension in range(ndim):
        length = be32(buf, dimensions + 8 * dimension)
        if length >= 0x80000000:
            return -INCORRECT
        count *= length
        if count > (end - pos) // 4:
            return -INSUFFICIENT
    if count == 0:
        if pos != end:
            return -INCORRECT
        out[at], out[at + 1] = _CURLY, _CURLY_END
        return at + 2
    at = _put_bounds(buf, dimensions, ndim, out, at)
    separator = nodes[node, _SEPARATOR]
    for number in range(count):
        if at + _HEAD > len(out):
            return -NO_ROOM
        if number:
            out[at] = np.uint8(separator)
            at += 1
        for dimension in range(ndim):
            if number % _stride(buf, dimensions, ndim, dimension) == 0:
                out[at] = _CURLY
                at += 1
        if end - pos < 4:
            return -INSUFFICIENT
        length = be32(buf, pos)
        pos += 4
        if length == _ABSENT:
            for byte in _NULL_WORD:
                out[at] = byte
                at += 1
        else:
            if length > end - pos:
                return -INSUFFICIENT
            start = at
            at = _element(nodes, nodes[node, _FIRST], buf, pos, length, out, at)
            if at >= 0:
                at = _quoted(out, start, at, _IN_ARRAY, separator)
            if at < 0:
                return at
            pos += length
        if at + _HEAD > len(out):
            return -NO_ROOM
        for dimension in range(ndim - 1, -1, -1):
            if (number + 1) % _stride(buf, dimensions, ndim, dimension) == 0:
                out[at] = _CURLY_END
                at += 1
    return at if pos == end else -INCORRECT


@inner_kernel
def put_value(nodes: Any, node: int, buf: Any, pos: int, size: int, out: Any, at: int) -> Any:
    """Write the text of a value of any type; minus an error code, or minus ``NO_ROOM``.

    A composite has the number of fields, then type, length and value of each field.
    """
    kind = nodes[node, _KIND]
    end = pos + size
    record = kind == RECORD
    fields = nodes[node, _COUNT] if record else 1
    if record:
        if size < 4:
            return -INSUFFICIENT
        if be32(buf, pos) != fields:
            return -INCORRECT
        pos += 4
        if at + _HEAD > len(out):
            return -NO_ROOM
        out[at] = _OPEN
        at += 1
    for number in range(fields):
        field, length = node, size
        if record:
            field = nodes[node, _FIRST] + number
            if at + _HEAD > len(out):
                return -NO_ROOM
            if number:
                out[at] = _COMMA
                at += 1
            if end - pos < 8:
                return -INSUFFICIENT
            length = be32(buf, pos + 4)
            pos += 8
            if length == _ABSENT:
                continue
            if length > end - pos:
                return -INSUFFICIENT
        start = at
        if nodes[field, _KIND] == ARRAY:
            at = _array(nodes, field, buf, pos, length, out, at)
        else:
            at = _element(nodes, field, buf, pos, length, out, at)
        if record and at >= 0:
            at = _quoted(out, start, at, _IN_RECORD, -1)
        if at < 0:
            return at
        pos += length
    if not record:
        return at
    if pos != end:
        return -INCORRECT
    if at + _HEAD > len(out):
        return -NO_ROOM
    out[at] = _CLOSE
    return at + 1
