"""What a procedure answers, as the server sends it; and which closed session is a fence."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.connect.proto import relations_pb2

from catalog.errcodes import ReplicationError
from config.guc import Settings
from tests.fix_lake import Lake
from workers.lake import iceberg, session
from workers.lake.destination import Identity, LakeIdent, Orphans
from workers.lake.failures import SessionClosed
from workers.lake.session import LakeSession, _rows_of


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


class Session:
    """One that was closed by the server when it was used once."""

    def __init__(self, _url: str, user_id: str, session_id: str, _conf: object) -> None:
        self.ids = (user_id, session_id)
        self.broken = self.closed_by_successor = False
        self.used = monotonic()

    def hear_closed(self) -> SessionClosed:
        self.broken = self.closed_by_successor = True
        return SessionClosed("lost the lake server")

    def close(self) -> None: ...


def test_a_closed_session_beside_the_batches_is_no_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A removal of orphan files took longer than the server lets a session be."""
    released: list[tuple[str, str]] = []
    monkeypatch.setattr(session, "LakeSession", Session)
    monkeypatch.setattr(session.Sessions, "release", lambda _, ids: released.extend(ids))
    removals: list[Session] = []

    def remove(given: Session, *_: object, **__: object) -> Orphans:
        removals.append(given)
        if len(removals) == 1:
            raise given.hear_closed()
        return Orphans(5)

    monkeypatch.setattr(iceberg, "remove_orphans", remove)
    dest: Any = iceberg.IcebergDestination(
        "sc://nowhere",
        identity=Identity(1, 1),
        staging_dir=Path("nowhere"),
        settings=Settings(),
        remember_session=lambda *_: None,
    )
    batches = dest._sessions.get()
    with ThreadPoolExecutor(1) as pool:
        ask = lambda: dest.remove_orphans(LakeIdent("s", "t"), owner="me", older_than=0)  # noqa: E731 - asked twice
        with pytest.raises(SessionClosed):
            pool.submit(ask).result()
        assert dest._sessions.get() is batches
        assert pool.submit(dest._sessions.get).result() is not batches
        assert pool.submit(ask).result() == Orphans(5)
    assert released == [removals[0].ids]
    batches.hear_closed()
    with pytest.raises(SessionClosed):
        dest._sessions.get()


def test_what_a_server_does_not_let_us_set_is_an_error(lake_server: Lake) -> None:
    """pyspark's own sessions go on without it."""
    refused = {"spark.sql.catalogImplementation": "hive"}
    made = LakeSession(lake_server.url, "me", str(uuid.uuid4()), refused)
    with pytest.raises(ReplicationError) as error:
        made.query("SELECT 1", "reading")
    assert error.value.detail == "CANNOT_MODIFY_STATIC_CONFIG."
    made.close()
