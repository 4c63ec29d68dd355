"""What a procedure answers, as the server sends it."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.connect.proto import relations_pb2

from workers.lake.session import _rows_of


def relation(data: bytes) -> object:
    made = relations_pb2.Relation()
    made.local_relation.data = data
    return made


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def test_rows_are_read() -> None:
    table = pa.table({"updated_ref": [7]})
    assert _rows_of({"sql_command_result": relation(stream(table))}) == table


def test_no_answer_is_none() -> None:
    assert _rows_of({}) is None
    assert _rows_of({"sql_command_result": relations_pb2.Relation()}) is None
    assert _rows_of({"sql_command_result": relation(stream(pa.table({"a": []})))}) is None


def test_an_answer_of_another_kind_is_none() -> None:
    assert _rows_of({"sql_command_result": relation(b"something else")}) is None
