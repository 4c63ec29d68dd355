"""Avro files as Iceberg's libraries write them, and what is left of them."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DoubleType,
    FloatType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
)

from workers.lake.metadata.avro_file import NotWholeError, UnknownCodecError, read_records

SCHEMA = Schema(
    NestedField(1, "n", LongType()),
    NestedField(2, "s", StringType(), required=True),
    NestedField(3, "b", BinaryType(), required=True),
    NestedField(4, "yes", BooleanType(), required=True),
    NestedField(5, "f", FloatType(), required=True),
    NestedField(6, "d", DoubleType(), required=True),
    NestedField(7, "l", ListType(8, LongType(), element_required=True), required=True),
    NestedField(9, "m", MapType(10, LongType(), 11, StringType()), required=True),
)
ROWS = [
    (n, "é" * abs(n), b"\0\xff", n > 0, 0.5, -2.25, [n, -n], {1: "a"})
    for n in (0, 1, -1, 63, 64, -65, 2**40, -(2**63))
    if abs(n) < 100
]


@pytest.fixture
def written(tmp_path: Path) -> bytes:
    """The rows, with a NULL at the end."""
    output = PyArrowFileIO().new_output(str(tmp_path / "rows.avro"))
    records = [Record(*row) for row in [*ROWS, (None, *ROWS[0][1:])]]
    with AvroOutputFile[Record](output, SCHEMA, "row") as file:
        file.write_block(records[:2])
        file.write_block(records[2:])
    return (tmp_path / "rows.avro").read_bytes()


def test_all_kinds_of_values(written: bytes) -> None:
    found = read_records(written)
    names = [field.name for field in SCHEMA.fields]
    for row, record in zip(ROWS, found, strict=False):
        entries = [{"key": key, "value": value} for key, value in row[-1].items()]
        assert record == dict(zip(names, (*row[:-1], entries), strict=True))
    assert len(found) == len(ROWS) + 1
    assert found[-1]["n"] is None


def test_no_part_of_a_file_is_taken_for_the_whole(written: bytes) -> None:
    """A cut between two blocks cannot be seen; a manifest's length is in its list."""
    whole = len(read_records(written))
    for size in range(len(written)):
        try:
            assert len(read_records(written[:size])) < whole
        except NotWholeError:
            continue
    with pytest.raises(NotWholeError):
        read_records(written[:-8] + bytes(8))


def header(schema: object, codec: str) -> bytes:
    """A file's beginning."""
    entries = {"avro.schema": json.dumps(schema), "avro.codec": codec}
    text = b"".join(number(len(t)) + t.encode() for each in entries.items() for t in each)
    return b"Obj\x01" + number(2) + text + number(0) + b"m" * 16


def number(value: int) -> bytes:
    out = bytearray()
    value <<= 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def block(content: bytes) -> bytes:
    return number(1) + number(len(content)) + content + b"m" * 16


def test_a_named_type_is_used_again() -> None:
    two = {"type": "fixed", "name": "two", "size": 2}
    fields = [{"name": "a", "type": two}, {"name": "b", "type": ["null", "two"]}]
    schema = {"type": "record", "name": "r", "fields": fields}
    pressed = zlib.compress(b"xx" + number(1) + b"yy")[2:-4]
    assert read_records(header(schema, "deflate") + block(pressed)) == [{"a": b"xx", "b": b"yy"}]


def test_a_codec_that_is_not_known() -> None:
    with pytest.raises(UnknownCodecError, match="snappy"):
        read_records(header("long", "snappy") + block(b"?"))
    assert read_records(header("long", "null") + block(number(7))) == [7]
