"""Frame a large transaction slice by slice, so that its size is no matter of memory.

A slice is a run of the transaction's changes, in commit order. A frame takes about 30 bytes of
memory for a change, and a fold up to 80 more. The rows that wait for the lake take about as much as
the records of the slice.

Trace, with a limit of two changes: ``B R I I U D C`` gives the slices ``B R I I``, ``U D`` and
``C``. The first slice ends inside the transaction: ``Frame.opened`` carries the transaction over.

A slice that was framed before need not be read again: a ``StandIn`` takes its place. With a
stand-in ``R I`` for ``R I I`` the slices are ``B``, ``R I``, ``U D`` and ``C``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from config.limits import SLICE_CHANGE_BYTES, SLICE_CHANGES, SLICE_OF_ROWS_CHANGES
from workers.columnar.frame import Frame, OpenTransaction, frame_part, record_end
from workers.columnar.kernel import kernel
from workers.columnar.tuples import DELETE, UPDATE, Bytes, readonly

_CHANGES = tuple(np.uint8(ord(byte)) for byte in "IUD")
_INSERT = np.uint8(ord("I"))
_BEFORE_TUPLE: Final = 10
"""The bytes of a record before the first tuple: length, message type, relation, tuple type."""


@dataclass(frozen=True, slots=True)
class StandIn:
    """``records`` in place of the records up to ``end``: what all checks of a slice look at.

    The records are the messages that are no change, and the first change of each kind of each
    relation, in order.
    """

    end: int
    records: Bytes


def stand_in_records(framed: Frame) -> Bytes | None:
    """The records of a stand-in for a slice; None if an update has an old row."""
    updates = framed.kind == UPDATE
    if framed.old_kind[updates].any():
        return None
    _, first = np.unique(framed.relid.astype(np.int64) << 8 | framed.kind, return_index=True)
    tuples = np.where(framed.kind[first] == DELETE, framed.old_off[first], framed.new_off[first])
    changes = (tuples - _BEFORE_TUPLE).tolist()
    starts = sorted(changes + [control.offset - 4 for control in framed.control])
    found = [framed.buf[at : record_end(framed.buf, at, len(framed.buf))] for at in starts]
    return np.concatenate(found) if found else np.empty(0, np.uint8)


def frame_slices(
    buf: Bytes,
    start: int,
    end: int,
    most_bytes: int,
    give_back: Callable[[int, int], None] | None = None,
    inside: OpenTransaction | None = None,
    stops: Sequence[int] = (),
    stand_ins: Mapping[int, StandIn] | None = None,
) -> Iterator[Frame]:
    """Frame the records in ``buf[start:end]`` slice by slice, with the errors of ``frame``.

    ``inside`` is for records between the first and the last of a transaction. At each of ``stops``,
    in order, a slice ends. A slice that begins at a key of ``stand_ins`` is not read.

    A slice takes at most ``most_bytes`` of memory, but has one record at least. Its records count,
    and ``SLICE_CHANGE_BYTES`` for every change. Rows are looked up for updates and deletes, so a
    slice has at most ``SLICE_OF_ROWS_CHANGES`` of them.
    """
    opened, view, coming = inside, readonly(buf), deque(stops)
    while start < end:
        if stand_ins and (known := stand_ins.get(start)) is not None:
            size = len(known.records)
            framed = frame_part(known.records, 0, size, None, opened, is_last=False)
            opened, start = framed.opened, known.end
            yield replace(framed, end=known.end)
            continue
        while coming and coming[0] <= start:
            coming.popleft()
        until = min(coming[0], end) if coming else end
        most = (SLICE_CHANGES, SLICE_OF_ROWS_CHANGES)
        stop = int(_slice_end(view, start, until, most_bytes, most, SLICE_CHANGE_BYTES))
        is_last = inside is None and stop == end
        framed = frame_part(buf, start, stop, give_back, opened, is_last=is_last)
        opened, start = framed.opened, stop
        yield framed
        del framed  # the slice must not stay in memory beside the next slice


def fits_one_slice(record_bytes: int, changes: int, most_bytes: int) -> bool:
    """Are records of so many bytes and changes a single slice?"""
    return changes <= SLICE_CHANGES and record_bytes + changes * SLICE_CHANGE_BYTES <= most_bytes


@kernel
def _slice_end(
    buf: Any, start: int, end: int, most_bytes: int, most: tuple[int, int], change_bytes: int
) -> Any:
    """The end of the slice that begins at ``start``.

    ``most`` are the most changes, and the most updates and deletes.

    A broken record, or the part of a record, is a slice by itself and left to ``frame_part``.
    """
    pos, size, changes, of_rows = start, 0, 0, 0
    most_changes, most_of_rows = most
    while pos < end:
        after = record_end(buf, pos, end)
        if after < 0:
            return pos if pos > start else end
        size += after - pos
        if buf[pos + 4] in _CHANGES:
            changes += 1
            of_rows += buf[pos + 4] != _INSERT
            size += change_bytes
        if pos > start and (size > most_bytes or changes > most_changes or of_rows > most_of_rows):
            return pos
        pos = after
    return end
