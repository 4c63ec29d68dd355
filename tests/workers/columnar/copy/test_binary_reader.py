"""COPY in binary form: cut anywhere, damaged, and where its kernels are not installed."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pytest

import workers.columnar
from catalog.errcodes import ReplicationError
from config.limits import CHUNK_BYTES, CHUNK_ROWS
from tests.workers.columnar.binary.sent_values import INT4, INT8, NUMERIC, TEXT, forms, int4
from tests.workers.columnar.records import rows
from workers.columnar import kernel, libpq
from workers.columnar.binary.forms import TEXT_ONLY, compile_forms
from workers.columnar.copy.binary_reader import BinaryCopyReader
from workers.lake.copy_task import BINARY, CopyReader, CopyTask, CopyTaskError, read_copy
from workers.lake.table import LakeColumn

pc: Any = pyarrow.compute
HEADER = b"PGCOPY\n\xff\r\n\0" + b"\0" * 8
END = b"\xff\xff"
COLUMNS = [LakeColumn("id", pa.int32()), LakeColumn("name", pa.string())]


def field(sent: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if sent is None else struct.pack(">i", len(sent)) + sent


def copied(*values: bytes | None) -> bytes:
    return struct.pack(">h", len(values)) + b"".join(field(sent) for sent in values)


def plain_nodes(*oids: int) -> Any:
    nodes = compile_forms(forms(*oids))
    return nodes.table.tolist(), nodes.roots.tolist()


def copy(chunks: Iterable[bytes], *oids: int) -> list[tuple[Any, ...]]:
    nodes = plain_nodes(*(oids or (INT4, TEXT)))
    batches = read_copy(chunks, COLUMNS, relation="public.t", nodes=nodes)
    return [tuple(each.values()) for each in rows(batches)]


@pytest.mark.parametrize("cut", [1, 2, 3, 7, 50, 10_000])
def test_014_a_binary_copy_may_be_cut_anywhere(cut: int) -> None:
    table = [(at, None if at % 3 == 0 else "x" * at) for at in range(20)]
    sent = HEADER + b"".join(copied(int4(at), n.encode() if n else None) for at, n in table) + END
    assert copy(sent[at : at + cut] for at in range(0, len(sent), cut)) == table


@pytest.mark.parametrize("block", [1, 20, 60])
@pytest.mark.parametrize("cut", [19, 20, 21, 61, 200])
def test_014_what_is_large_enough_is_read_where_it_lies(cut: int, block: int) -> None:
    """A piece's memory is another's afterwards, so nothing of it is in a row that was read."""
    table = [(at, "x" * (at % 30)) for at in range(40)]
    sent = HEADER + b"".join(copied(int4(at), text.encode()) for at, text in table) + END
    room = bytearray(cut)

    def pieces() -> Iterator[memoryview]:
        for at in range(0, len(sent), cut):
            piece = sent[at : at + cut]
            room[: len(piece)] = piece
            yield memoryview(room)[: len(piece)]
            room[:] = b"\xee" * cut

    columns = [(column.name, column.type) for column in COLUMNS]
    told = (columns, plain_nodes(INT4, TEXT), False, "public.t", CopyTaskError)
    batches = list(BinaryCopyReader(*told, block=block).batches(pieces()))
    assert [tuple(each.values()) for each in rows(batches)] == table


@pytest.mark.parametrize(
    ("sent", "sqlstate", "primary"),
    [
        (b"", "22P04", "COPY file signature not recognized"),
        (b"x" * 30, "22P04", "COPY file signature not recognized"),
        (HEADER[:11] + b"\0\1\0\0\0\0\0\0", "22P04", "unrecognized critical flags"),
        (HEADER, "22P04", "unexpected EOF in COPY data"),
        (HEADER + copied(int4(1), b"x")[:-1], "22P04", "unexpected EOF in COPY data"),
        (HEADER + copied(int4(1), b"x") + END + b"x", "22P04", "received copy data after EOF"),
        (HEADER + copied(int4(1)) + END, "22P04", "another number of fields"),
        (HEADER + b"\0\2\x80\0\0\0" + END, "22P04", "invalid field size"),
        (HEADER + copied(b"\0\0\0\0\0", b"x") + END, "22P03", "incorrect binary data format"),
        (HEADER + copied(b"\0", b"x") + END, "08P01", "insufficient data left in message"),
        (HEADER + copied(int4(1), b"\xff") + END, "22003", 'column "name"'),
    ],
)
def test_014_a_damaged_binary_copy(sent: bytes, sqlstate: str, primary: str) -> None:
    with pytest.raises(ReplicationError) as caught:
        copy([sent])
    assert caught.value.code == sqlstate
    assert primary in caught.value.primary


def test_s_014_7_an_integer_that_fits_a_narrower_lake_column_is_taken() -> None:
    """The lake's column reads the value's text, so the width on the wire is no error."""
    narrow = struct.pack(">q", 7)
    assert copy([HEADER + copied(narrow, b"x") + END], INT8, TEXT) == [(7, "x")]
    with pytest.raises(ReplicationError) as caught:
        copy([HEADER + copied(struct.pack(">q", 2**40), b"x") + END], INT8, TEXT)
    assert caught.value.code == "22003"


def test_014_more_rows_than_a_batch_takes() -> None:
    rows_in_all = 2 * CHUNK_ROWS + 1
    sent = [HEADER, copied(int4(7), b"x") * rows_in_all, END]
    batches = list(read_copy(sent, COLUMNS, nodes=plain_nodes(INT4, TEXT)))
    assert [batch.num_rows for batch in batches] == [CHUNK_ROWS, CHUNK_ROWS, 1]
    assert {(7, "x")} == {tuple(each.values()) for each in rows(batches)}


def test_014_rows_of_no_column() -> None:
    batches = read_copy([HEADER + copied() * 3 + END], [], nodes=plain_nodes())
    assert [batch.num_rows for batch in batches] == [3]


def test_014_text_that_is_much_larger_comes_in_more_batches() -> None:
    """20,000 numerics of 16 bytes are 2.6 GB of digits; none that is whole is read twice."""
    huge = struct.pack(">hhHHh", 1, 32_767, 0, 0, 7)  # 7 and 131,068 zeros
    columns = [LakeColumn("id", pa.int32()), LakeColumn("n", pa.string())]
    sent = HEADER + b"".join(copied(int4(at), huge) for at in range(1200)) + END
    batches = read_copy([sent], columns, nodes=plain_nodes(INT4, NUMERIC))
    numbers: list[Any] = []
    for batch in batches:
        assert batch.nbytes < 2 * CHUNK_BYTES
        assert set(pc.binary_length(batch.column(1)).to_pylist()) == {131_069}
        numbers += batch.column(0).to_pylist()
    assert numbers == list(range(1200))


def task_of(kernels: str) -> CopyTask:
    reader = CopyReader([("id", pa.int32())], relation="public.t")
    statements = (f"COPY t (id) TO STDOUT {BINARY}",)
    return CopyTask("", None, "", statements, 1, reader, plain_nodes(INT4), kernels)


def test_an_executor_with_our_kernels_copies_binary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "kept", lambda: True)
    task = task_of(kernel.DIGEST)
    assert task._has_kernels()
    assert task._readable(compiled=True)[1] == task.statements
    assert task._readable(compiled=False) == (task.reader, ["COPY t (id) TO STDOUT (FORMAT csv)"])


def test_an_executor_with_other_kernels_copies_text() -> None:
    assert not task_of("0123456789abcdef")._has_kernels()


def test_so_does_one_that_would_have_to_compile_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "kept", lambda: False)
    assert not task_of(kernel.DIGEST)._has_kernels()


def test_and_one_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(workers.columnar.copy, "binary_reader")
    monkeypatch.setitem(sys.modules, "workers.columnar.copy.binary_reader", None)
    assert not task_of(kernel.DIGEST)._has_kernels()


def test_and_one_without_what_they_stand_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise OSError("cannot load library")

    monkeypatch.setattr(libpq, "register_symbols", missing)
    assert not task_of(kernel.DIGEST)._has_kernels()


def test_014_a_column_whose_type_got_a_send_function_just_now_is_refused() -> None:
    nodes = compile_forms([TEXT_ONLY])
    plain = (nodes.table.tolist(), nodes.roots.tolist())
    sent = [HEADER + copied(b"x") + END]
    with pytest.raises(ReplicationError) as caught:
        list(read_copy(sent, COLUMNS[1:], relation="public.t", nodes=plain))
    assert caught.value.code == "0A000"
    [nothing] = read_copy([HEADER + copied(None) + END], COLUMNS[1:], nodes=plain)
    assert nothing.num_rows == 1
