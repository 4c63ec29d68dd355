"""What a procedure answers, as the server sends it; and settings that a server refuses."""

from __future__ import annotations

import os
import signal
import uuid

import pyarrow as pa
import pytest
from pyspark.sql.connect.proto import relations_pb2

from catalog.errcodes import ReplicationError, RequiredProcessGone
from tests.fix_lake import Lake
from workers.lake.connect import session
from workers.lake.connect.session import LakeSession, _rows_of, channel_builder


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


def test_what_a_server_does_not_let_us_set_is_an_error(lake_server: Lake) -> None:
    """pyspark's own sessions go on without it."""
    refused = {"spark.sql.catalogImplementation": "hive"}
    made = LakeSession(lake_server.url, "me", str(uuid.uuid4()), refused)
    with pytest.raises(ReplicationError) as error:
        made.query("SELECT 1", "reading")
    assert error.value.detail == "CANNOT_MODIFY_STATIC_CONFIG."
    made.close()


def test_a_server_on_this_machine_is_not_reached_through_a_proxy(
    lake_server: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variables are those of a machine whose way to the world is a proxy."""
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("no_grpc_proxy", raising=False)
    opened = LakeSession(lake_server.url, "proxied", str(uuid.uuid4()))
    assert opened.query("SELECT 1 AS one", "asking").to_pylist() == [{"one": 1}]
    opened.close()


def test_a_server_elsewhere_may_be_reached_through_a_proxy() -> None:
    asked = ("grpc.enable_http_proxy", 0)
    assert asked not in channel_builder("sc://spark.example:15002")._channel_options
    assert asked in channel_builder("sc://localhost:15002")._channel_options


def test_a_frozen_server_is_given_up_during_a_call(
    lake_server: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long a call may take: the time of the call is not limited."""
    monkeypatch.setattr(session, "CHANNEL_PING_SECONDS", 1.0)
    monkeypatch.setattr(session, "CHANNEL_PING_ANSWER_SECONDS", 1.0)
    made = LakeSession(lake_server.url, "frozen", str(uuid.uuid4()))
    made.configure()
    os.kill(lake_server.server.process.pid, signal.SIGSTOP)
    try:
        with pytest.raises(RequiredProcessGone):
            made.query("SELECT 1", "reading")
    finally:
        os.kill(lake_server.server.process.pid, signal.SIGCONT)
    made.close()
