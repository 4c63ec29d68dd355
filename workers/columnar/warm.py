"""Load every kernel before the first byte arrives.

Kernels are compiled on first use and cached beside the modules. Loading a kernel from the cache
takes tens of milliseconds; compiling all kernels after an installation takes most of a minute. The
fork server calls ``warm`` once, before the first worker.

The compiler keeps 300 MB for as long as the process lives, and each forked worker would count them
as its own. So ``compile_apart`` lets another process compile, which ends.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress

import numpy as np
import pyarrow as pa

from workers.columnar.binary.forms import compile_forms, form_of
from workers.columnar.column_reader import Layout, MappedColumn, in_form
from workers.columnar.copy.binary_reader import BinaryCopyReader
from workers.columnar.copy.libpq_rows import CopyFailed, copy_data
from workers.columnar.drain import Drain
from workers.columnar.fold.after_lookup import Probed
from workers.columnar.fold.by_key import fold_keyed
from workers.columnar.fold.unique_keys import UniqueKeys
from workers.columnar.fold.whole_rows import full_images
from workers.columnar.frame import frame, record_end
from workers.columnar.frame_slices import frame_slices
from workers.columnar.kernel import can_keep, kept
from workers.columnar.key_search import KeyNumbers, Numbers, numbers_of
from workers.columnar.key_table import count_buckets, fill_buckets, probe
from workers.columnar.secret_hash import secret_numbers_of
from workers.columnar.subtransactions import Subtransactions
from workers.parent_death import die_with_parent

_INT8 = 20  # pg_type's oid
_NUMERIC = 1700
_UUID = 2950  # read by way of the text
_COPY = (
    b"PGCOPY\n\xff\r\n\0" + bytes(8)
    + b"\0\3" + b"\0\0\0\10" + bytes(8) + b"\0\0\0\10" + bytes(8) + b"\0\0\0\20" + bytes(16)
    + b"\xff\xff"
)  # fmt: skip
_NO_CONNECTION = 0  # libpq takes a null connection and answers with an error


def _copy_error(
    sqlstate: str, primary: str, detail: str | None = None, hint: str | None = None
) -> Exception:
    return ValueError(sqlstate, primary, detail, hint)


def compile_apart() -> None:
    """Compile the kernels in a process that ends, unless the cache has them, or can have none.

    Call where no thread runs: the process is a copy of this one. A process that fails is no error;
    ``warm`` compiles what is missing.
    """
    if kept() or not can_keep():
        return
    child = os.fork()
    if child == 0:
        try:
            die_with_parent()
            warm()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def warm() -> None:
    """Run every kernel once on a few bytes; needs no connection."""
    buf = np.frombuffer(_spool(), np.uint8)
    framed = frame(buf, 0, len(buf))
    columns = (MappedColumn("k", 0, pa.int64()), MappedColumn("v", 1, pa.decimal128(9, 1)))
    for _ in frame_slices(buf, 0, len(buf), len(buf)):
        record_end(buf, 0, len(buf))
    changes = in_form(framed.changes(slice(None)), None)
    layout = Layout(2, (0,), columns)
    probed = Probed(changes, layout)
    probed.resolve([0], overwrite=True)
    UniqueKeys(changes, layout, [(1,)], probed.key_of).first_broken(np.zeros((0, 2), np.int64))
    keyed = fold_keyed(changes, layout)
    list(keyed.merge_batches())
    list(keyed.append_batches())
    full = full_images(changes, Layout(2, (), columns))
    list(full.image_batches())
    full.resolve([0])
    list(full.position_batches(pa.array(["f"]), pa.array([0])))
    list(full.append_batches())
    keys = pa.array([1], pa.int64())
    for number in (keys, pa.array(["a"]), pa.array([None], pa.decimal128(9, 1))):
        for key in ([number], [number, keys]):
            numbers = numbers_of(key)
            KeyNumbers(numbers).search(numbers)
            secret_numbers_of(key, 0)
    warm_key_table(numbers)
    warm_copy()
    subtransactions = Subtransactions()
    subtransactions.add(np.ones((1, 3), np.int64), 0, 0)
    subtransactions.cut(1)
    Drain(_NO_CONNECTION).run(np.empty(64, np.uint8), 0)


def warm_key_table(numbers: Numbers) -> None:
    """Run the kernels of the remembered keys."""
    starts, places = np.zeros(3, np.int32), np.zeros(1, np.int32)
    written = np.zeros(1, np.int64), np.zeros(1, np.int64), places
    count_buckets(numbers, 63, starts)
    fill_buckets(numbers, numbers, places, 63, starts.copy(), *written)
    for array in (starts, places):
        array.flags.writeable = False
    found = np.empty(1, np.int64), np.empty(1, np.int64)
    probe(numbers, numbers, starts, 63, numbers, numbers, places, *found)


def warm_copy() -> None:
    """Run the kernels that read the rows of a COPY; Spark's Python runs these, too."""
    nodes = compile_forms([form_of(oid, {}) for oid in (_INT8, _NUMERIC, _UUID)])
    plain = (nodes.table.tolist(), nodes.roots.tolist())
    copied: list[tuple[str, pa.DataType]] = [
        ("k", pa.int64()),
        ("v", pa.decimal128(9, 1)),
        ("u", pa.string()),
    ]
    list(BinaryCopyReader(copied, plain, False, "", _copy_error).batches([_COPY]))
    with suppress(CopyFailed):
        list(copy_data(_NO_CONNECTION, lambda: None))


def _spool() -> bytes:
    """A transaction with a change of each kind."""
    old, new = _tuple(b"1", b"1.0"), _tuple(b"2", b"1")
    unchanged = struct.pack(">H", 2) + _text(b"2") + b"u"
    messages = [
        b"B" + struct.pack(">qqI", 1, 0, 1),
        b"U\0\0\0\1O" + old + b"N" + unchanged,
        b"I\0\0\0\1N" + _tuple(b"3", b"4"),
        b"D\0\0\0\1O" + new,
        b"C\0" + struct.pack(">qqq", 1, 2, 0),
    ]
    return b"".join(struct.pack("<I", len(message)) + message for message in messages)


def _tuple(*values: bytes) -> bytes:
    return struct.pack(">H", len(values)) + b"".join(_text(value) for value in values)


def _text(value: bytes) -> bytes:
    return b"t" + struct.pack(">I", len(value)) + value
