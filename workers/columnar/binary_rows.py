"""Rows in binary form made rows of text, before anything else looks at them.

What is folded, hashed and compared is text: a key or an old row is then the same, whether the
publisher sent it as ``b`` or as ``t``, and a value becomes what the same value becomes that was
sent as text, with the same errors. A walsender mixes the two, since a type without a send
function has no binary form.

Tuples are written anew, one after the other, into a buffer of their own. A run that is larger
than a batch usually is (one large transaction) goes to a file beside the spool's.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from catalog.errcodes import ReplicationError
from workers.columnar.binary_catalog import Form, compile_forms
from workers.columnar.binary_nested import RANGE, put_value
from workers.columnar.binary_scalars import put_scalar
from workers.columnar.columns import Changes, kernel_error
from workers.columnar.kernel import inner_kernel, kernel
from workers.columnar.tuples import BINARY_VALUE, NO_ROOM, Bytes, be16, be32, readonly

IN_MEMORY: Final = 128 << 20
"""Bytes of rewritten rows beyond which they go to a file."""

_N, _T, _B = (np.uint8(ord(byte)) for byte in "ntb")

_AT, _ERROR, _CHANGE = range(3)


class UnreadableValue(ReplicationError):  # noqa: N818 - named as PostgreSQL's conditions are
    """A binary value that is none of its type; carries the change at fault."""

    def __init__(self, error: ReplicationError, change: int) -> None:
        super().__init__(error.primary, detail=error.detail, hint=error.hint, sqlstate=error.code)
        self.change = change


def textual(changes: Changes, forms: Sequence[Form | None], folder: Path | None = None) -> Changes:
    """``changes`` with every binary value as text; ``forms`` are the relation's columns'.

    What is too large for memory goes to a file without a name in ``folder``.

    Raises ``UnreadableValue``: 08P01, 22P03 or 22008 for what is no value of its type, 0A000 for a
    binary value of a column without a form.
    """
    buf = readonly(changes.buf)
    nodes = compile_forms(forms)
    count = len(changes)
    new_off, old_off = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    state = np.zeros(3, np.int64)
    room = Room(_estimate(buf, changes.old_off, changes.new_off), folder)
    done = 0
    while True:
        done = _rewrite(
            buf,
            (changes.old_off, changes.new_off),
            (nodes.table, nodes.roots),
            room.buf.view(np.ndarray),
            (old_off, new_off),
            done,
            state,
        )
        if state[_ERROR]:
            change = int(state[_CHANGE])
            raise UnreadableValue(kernel_error(int(state[_ERROR]), change), change)
        if done == count:
            break
        room.grow(int(state[_AT]))
    return replace(changes, buf=room.buf, old_off=old_off, new_off=new_off)


class Room:
    """A buffer that grows: in memory, or beside what was spooled once it is large."""

    def __init__(self, size: int, folder: Path | None = None) -> None:
        self._folder = folder
        self.buf: Bytes = np.empty(max(size, 64), np.uint8)
        if folder is not None and size > IN_MEMORY:
            self.buf = _mapped(folder, size)

    def grow(self, used: int) -> None:
        """Double it; the first ``used`` bytes stay."""
        size = 2 * len(self.buf)
        in_file = self._folder is not None and size > IN_MEMORY
        grown = _mapped(self._folder, size) if in_file else np.empty(size, np.uint8)
        grown[:used] = self.buf[:used]
        self.buf = grown


def _mapped(folder: Path | None, size: int) -> Bytes:
    """A file's mapping; the file has no name and goes with it."""
    with tempfile.TemporaryFile(dir=folder) as file:
        file.truncate(size)
        return np.memmap(file, np.uint8, "r+", shape=(size,))


@kernel
def _estimate(buf: Any, old_off: Any, new_off: Any) -> Any:
    """About what the text will take: half as much again as some of the first tuples do."""
    total = 0
    seen = min(len(new_off), 64)
    for change in range(seen):
        for off in (old_off[change], new_off[change]):
            if off >= 0:
                pos = off + 2
                for _ in range(be16(buf, off)):
                    status = buf[pos]
                    pos += 1
                    if status in (_T, _B):
                        pos += 4 + be32(buf, pos)
                total += pos - off
    return 4096 + (total * 3 // 2) * ((len(new_off) + seen) // max(seen, 1))


@kernel
def _rewrite(
    buf: Any, tuples: Any, nodes: Any, out: Any, places: Any, begin: int, state: Any
) -> Any:
    """Rewrite the tuples of the changes from ``begin`` on, until there is no room.

    ``state`` is (end of what is written, error code, change). Returns the next change.
    """
    for change in range(begin, len(tuples[0])):
        at = state[_AT]
        for which in range(2):
            off = tuples[which][change]
            if off < 0:
                continue
            places[which][change] = at
            at = put_tuple(buf, off, nodes, out, at)
            if at == -NO_ROOM:
                return change
            if at < 0:
                state[_ERROR], state[_CHANGE] = -at, change
                return change
        state[_AT] = at
    return len(tuples[0])


@inner_kernel
def put_tuple(buf: Any, off: int, nodes: Any, out: Any, at: int) -> Any:
    """Write the tuple at ``off`` with text for what is binary; its end, or minus an error code.

    A column that the relation does not have, in an old tuple, is of no known type: NULL.
    """
    table, roots = nodes
    ncols = be16(buf, off)
    if at + 2 > len(out):
        return -NO_ROOM
    out[at], out[at + 1] = buf[off], buf[off + 1]
    pos, at = off + 2, at + 2
    for column in range(ncols):
        if at + 5 > len(out):
            return -NO_ROOM
        status = buf[pos]
        pos += 1
        if status != _T and status != _B:
            out[at] = status
            at += 1
            continue
        size = be32(buf, pos)
        pos += 4
        if column >= len(roots):
            out[at] = _N
            at += 1
        elif status == _T:
            at = put_text(buf, pos, size, out, at)
        else:
            at = put_binary(table, roots[column], buf, pos, size, out, at)
        if at < 0:
            return at
        pos += size
    return at


@inner_kernel
def put_binary(table: Any, root: int, buf: Any, pos: int, size: int, out: Any, at: int) -> Any:
    """A column's value in binary form; ``out`` has room for its head at least."""
    end = put_plain(table, root, buf, pos, size, out, at + 5)
    if end >= 0:
        put_head(end - at - 5, out, at)
    return end


@inner_kernel
def put_plain(table: Any, root: int, buf: Any, pos: int, size: int, out: Any, at: int) -> Any:
    """The same without a head."""
    if root < 0:
        return -BINARY_VALUE
    kind = table[root, 0]
    if kind < RANGE:
        return put_scalar(kind, buf, pos, size, out, at)
    return put_value(table, root, buf, pos, size, out, at)


@inner_kernel
def put_text(buf: Any, pos: int, size: int, out: Any, at: int) -> Any:
    """A column's value that is text already."""
    if at + 5 + size > len(out):
        return -NO_ROOM
    put_head(size, out, at)
    at += 5
    for byte in range(size):
        out[at + byte] = buf[pos + byte]
    return at + size


@inner_kernel
def put_head(size: int, out: Any, at: int) -> None:
    """The letter and the length of a text."""
    out[at] = _T
    for byte in range(4):
        out[at + 1 + byte] = np.uint8((size >> (24 - 8 * byte)) & 255)
