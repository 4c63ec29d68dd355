"""COPY's CSV as typed batches."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError
from tests.fix_publisher import Database
from workers.lake.connect.errors import as_replication_error
from workers.lake.copy_task import (
    CopyReader,
    CopyTask,
    CopyTaskError,
    Turns,
    conn_literal,
    read_copy,
)


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: pa.DataType


INT = Column("i", pa.int32())
TEXT = Column("t", pa.string())


def rows(data: bytes, columns: Sequence[Column], **more: Any) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for batch in read_copy([data], columns, **more):
        assert batch.schema.names == [f"c{n}" for n in range(len(columns))]
        assert batch.schema.types == [column.type for column in columns]
        found += (tuple(row.values()) for row in batch.to_pylist())
    return found


def test_null_and_the_empty_string_differ() -> None:
    data = b'1,\n2,""\n,x\n'
    assert rows(data, [INT, TEXT]) == [(1, None), (2, ""), (None, "x")]


def test_a_single_column_of_nulls() -> None:
    assert rows(b"\n\n1\n\n", [INT]) == [(None,), (None,), (1,), (None,)]
    assert rows(b'\n""\na\n', [TEXT]) == [(None,), ("",), ("a",)]


def test_values_with_newlines_quotes_and_commas() -> None:
    data = b'1,"a\nb"\n2,"say ""hi"", ok"\n3,"\r\n"\n4,"\\."\n'
    assert rows(data, [INT, TEXT]) == [(1, "a\nb"), (2, 'say "hi", ok'), (3, "\r\n"), (4, "\\.")]


def test_a_byte_order_mark_is_part_of_the_value() -> None:
    mark = "\ufeff".encode()
    data = mark + b"a,1\n" + mark + b"b,2\n"
    assert rows(data, [TEXT, INT]) == [("\ufeffa", 1), ("\ufeffb", 2)]
    assert rows(mark + b"a,1\n" + b"b,x\n", [TEXT, TEXT]) == [("\ufeffa", "1"), ("b", "x")]


@pytest.mark.parametrize(
    ("value", "type"),
    [
        (b"123456789012345678901234567890123456.5", pa.decimal128(38, 10)),
        (b"12345678901.5", pa.decimal128(38, 30)),
        (b"123456789012345.1", pa.decimal128(20, 10)),
    ],
)
def test_a_decimal_that_does_not_fit_is_refused(value: bytes, type: pa.DataType) -> None:
    with pytest.raises(ReplicationError) as caught:
        rows(value + b"\n", [Column("n", type)])
    assert caught.value.code == "22003"


def test_every_type() -> None:
    columns = [
        Column("b", pa.bool_()),
        Column("i8", pa.int64()),
        Column("f4", pa.float32()),
        Column("f8", pa.float64()),
        Column("n", pa.decimal128(12, 2)),
        Column("y", pa.binary()),
        Column("d", pa.date32()),
        Column("ts", pa.timestamp("us")),
        Column("tz", pa.timestamp("us", "UTC")),
        Column("a", pa.list_(pa.field("element", pa.int32()))),
    ]
    data = (
        b"t,-9223372036854775808,1.5,-Infinity,-0.01,\\x00ff,2024-02-29,"
        b'2024-01-02 03:04:05.000006,2024-01-02 03:04:05+00,"{1,NULL}"\n' + b"," * 9 + b"\n"
    )
    assert rows(data, columns) == [
        (
            True,
            -(2**63),
            1.5,
            float("-inf"),
            Decimal("-0.01"),
            b"\x00\xff",
            date(2024, 2, 29),
            datetime(2024, 1, 2, 3, 4, 5, 6),
            datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC),
            [1, None],
        ),
        (None,) * 10,
    ]


@pytest.mark.parametrize(
    ("type", "value"),
    [
        (pa.int32(), b"3000000000"),
        (pa.decimal128(5, 2), b"NaN"),
        (pa.decimal128(5, 2), b"1.234"),
        (pa.date32(), b"infinity"),
        (pa.timestamp("us"), b"0044-03-15 12:00:00 BC"),
        (pa.float32(), b"1e300"),
        (pa.list_(pa.int32()), b'"{{1},{2}}"'),
        (pa.string(), b"\xff"),
    ],
)
def test_what_a_column_cannot_hold_is_an_error_or_null(type: pa.DataType, value: bytes) -> None:
    columns = [INT, Column("bad", type)]
    data = b"1,\n2," + value + b"\n"
    with pytest.raises(ReplicationError) as error:
        rows(data, columns, relation="public.t")
    assert error.value.code == "22003"
    assert '"bad"' in error.value.primary
    assert '"public.t"' in error.value.primary
    assert value.decode("latin-1") not in error.value.report()
    assert rows(data, columns, null_unrepresentable=True) == [(1, None), (2, None)]


def test_a_date_outside_of_the_type_is_the_last_one_where_asked() -> None:
    columns = [INT, Column("due", pa.date32()), Column("day", pa.date32())]
    assert rows(b"1,infinity,\n", columns, clamped=["due"]) == [(1, date(9999, 12, 31), None)]
    with pytest.raises(ReplicationError, match='"day"'):
        rows(b"1,,infinity\n", columns, clamped=["due"])


def test_a_wrong_number_of_columns_is_a_protocol_violation() -> None:
    with pytest.raises(ReplicationError) as error:
        rows(b"1,2,3\n", [INT, TEXT])
    assert error.value.code == "08P01"


def test_nothing_copied_is_no_batch() -> None:
    assert list(read_copy([], [INT])) == []
    assert list(read_copy([b""], [INT])) == []


def test_blocks_are_cut_only_where_a_row_ends() -> None:
    source = random.Random(7)
    values = [
        "".join(source.choice('a"\n,x') for _ in range(source.randrange(12))) for _ in range(500)
    ]
    data = "".join(
        f'{n},"{value.replace(chr(34), chr(34) * 2)}"\n' for n, value in enumerate(values)
    ).encode()

    def chunks() -> Iterator[bytes]:
        at = 0
        while at < len(data):
            size = source.randrange(1, 40)
            yield data[at : at + size]
            at += size

    reader = CopyReader([("i", pa.int32()), ("t", pa.string())], block=64)
    batches = list(reader.batches(chunks()))
    assert len(batches) > 5
    found = pa.Table.from_batches(batches).to_pydict()
    assert found == {"c0": list(range(500)), "c1": values}


def test_a_task_error_comes_home_as_it_was_raised() -> None:
    sent = CopyTaskError("22003", 'column "a" {', "It's so.", "Do that.")
    around = RuntimeError(f"Traceback …\nworkers.copy_task.CopyTaskError: {sent}\n\tat java.lang")
    error = as_replication_error(around, "copying")
    assert (error.code, error.primary, error.detail, error.hint) == (
        "22003",
        'column "a" {',
        "It's so.",
        "Do that.",
    )


def test_a_snapshot_name_is_checked() -> None:
    assert conn_literal("00000003-0000001B-1") == "'00000003-0000001B-1'"
    with pytest.raises(CopyTaskError):
        conn_literal("x'; DROP TABLE t; --")


def test_a_snapshot_that_is_gone_is_a_lost_connection(database: Database) -> None:
    """The error of the publisher is one of data; no row and no table is at fault."""
    task = CopyTask(
        database.dsn, None, "00000003-0000001B-1", [], 1, CopyReader([("i", pa.int32())])
    )
    with pytest.raises(CopyTaskError) as caught:
        list(task.copy_range("COPY (SELECT 1) TO STDOUT", False))
    assert caught.value.sqlstate == "08006"
    assert caught.value.detail is not None
    assert "snapshot" in caught.value.detail


class RecordedTask(CopyTask):
    """A task whose ranges are their statements."""

    def copy_range(self, statement: str, compiled: bool) -> Iterator[bytes]:
        yield statement.encode()


@pytest.mark.parametrize("tasks", [1, 2, 3, 7])
def test_the_tasks_share_the_ranges_among_them(tasks: int) -> None:
    statements = [f"{n}\n" for n in range(7)]
    task = RecordedTask("", None, "", statements, tasks, CopyReader([("i", pa.int32())]))
    numbered = pa.record_batch({"id": list(range(tasks))})
    found = pa.Table.from_batches(list(task([numbered]))).column("c0")
    assert set(found.to_pylist()) == set(range(7))
    assert len(found) == 7
    own = [len(list(task([pa.record_batch({"id": [n]})]))) for n in range(tasks)]
    assert max(own) - min(own) <= 1


def test_tasks_of_all_copies_take_turns(tmp_path: Path) -> None:
    turns, got, over = Turns(str(tmp_path), 2), threading.Event(), threading.Event()

    def third() -> None:
        with Turns(str(tmp_path), 2).taken():
            got.set()
        over.set()

    thread = threading.Thread(target=third)
    with turns.taken(), turns.taken():
        thread.start()
        assert not got.wait(0.3)
    assert got.wait(30)
    assert over.wait(30)
    thread.join()
