"""What a procedure answers, as the server sends it; and which closed session is a fence."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar

import grpc
import pyarrow as pa
import pytest
from pyspark.sql.connect.proto import base_pb2_grpc, relations_pb2

from catalog.errcodes import ConnectionFailure, ReplicationError
from config.guc import Settings
from config.limits import SESSION_IDLE_SECONDS
from tests.fix_lake import Lake
from workers.lake.connect import sessions, shared_session
from workers.lake.connect.errors import SessionClosed
from workers.lake.connect.session import LakeSession, _rows_of
from workers.lake.connect.session_conf import FIXED
from workers.lake.connect.sessions import Sessions
from workers.lake.connect.user_query import run_query
from workers.lake.effects import Orphans
from workers.lake.iceberg import destination
from workers.lake.table import Identity, LakeIdent


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

    usable = LakeSession.usable

    def hear_closed(self) -> SessionClosed:
        self.broken = self.closed_by_successor = True
        return SessionClosed("lost the lake server")

    def share(self) -> None: ...

    def close(self) -> None: ...


def test_a_closed_session_beside_the_batches_is_no_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A removal of orphan files took longer than the server lets a session be."""
    released: list[tuple[str, str]] = []
    monkeypatch.setattr(sessions, "LakeSession", Session)
    monkeypatch.setattr(sessions.Sessions, "release", lambda _, ids: released.extend(ids))
    removals: list[Session] = []

    def remove(given: Session, *_: object, **__: object) -> Orphans:
        removals.append(given)
        if len(removals) == 1:
            raise given.hear_closed()
        return Orphans(5)

    monkeypatch.setattr(destination, "remove_orphans", remove)
    dest: Any = destination.IcebergDestination(
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


@pytest.fixture
def begun(lake_server: Lake) -> Iterator[Callable[[], LakeSession]]:
    made: list[Sessions] = []

    def begin() -> LakeSession:
        made.append(Sessions(lake_server.url, "sharing", lambda *ids: None))
        return made[-1].get()

    yield begin
    for each in made:
        each.close()


@pytest.mark.spark
def test_a_new_session_shares_generated_code_and_python_processes(
    begun: Callable[[], LakeSession],
) -> None:
    assert begun().conf("spark.sql.artifact.isolation.enabled") == "false"


@pytest.mark.spark
def test_a_users_own_session_does_not(lake_server: Lake) -> None:
    sharing = run_query(lake_server.url, "SET spark.sql.artifact.isolation.enabled")
    assert sharing.to_pylist()[0]["value"] == "true"


class Stub:
    """Of a server that takes settings and answers a clone with an error."""

    released: ClassVar[list[str]] = []

    def __init__(self, code: grpc.StatusCode) -> None:
        self._code = code

    def Config(self, request: Any, **_: Any) -> None: ...  # noqa: N802 - gRPC's name

    def CloneSession(self, request: Any, **_: Any) -> None:  # noqa: N802 - gRPC's name
        error: Any = grpc.RpcError()
        error.code = lambda: self._code
        raise error

    def ReleaseSession(self, request: Any, **_: Any) -> None:  # noqa: N802 - gRPC's name
        self.released.append(request.session_id)


def test_a_server_without_clones_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        base_pb2_grpc,
        "SparkConnectServiceStub",
        lambda _: Stub(grpc.StatusCode.UNIMPLEMENTED),
    )
    Stub.released.clear()
    assert not shared_session.begin(None, [], "me", "mine")
    assert len(Stub.released) == 1
    assert Stub.released != ["mine"]


def test_a_clone_without_an_answer_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may come to be later; the thread's next session has another id."""
    monkeypatch.setattr(
        base_pb2_grpc,
        "SparkConnectServiceStub",
        lambda _: Stub(grpc.StatusCode.DEADLINE_EXCEEDED),
    )
    released: list[tuple[str, str]] = []
    monkeypatch.setattr(Sessions, "release", lambda _, ids: released.extend(ids))
    begun: list[tuple[str, str]] = []
    sessions = Sessions("sc://localhost:1", "me", lambda *ids: begun.append(ids))
    for _ in range(2):
        with pytest.raises(ConnectionFailure):
            sessions.get()
    assert len(set(begun)) == 2
    assert released == begun[:1]


def test_a_session_that_nobody_used_for_long_is_not_handed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server of somebody's own may be about to forget it."""
    monkeypatch.setattr(LakeSession, "share", lambda _: None)
    sessions = Sessions("sc://localhost:1", "me", lambda *_: None)
    used = sessions.get()
    used.used -= SESSION_IDLE_SECONDS
    assert sessions.release_for_reuse() is None
    used.used += SESSION_IDLE_SECONDS
    assert sessions.release_for_reuse() == used.ids


@pytest.mark.spark
def test_a_new_session_has_what_every_session_has(begun: Callable[[], LakeSession]) -> None:
    session = begun()
    assert {key: session.conf(key) for key in FIXED} == FIXED


@pytest.mark.spark
def test_python_processes_are_those_of_earlier_sessions(begun: Callable[[], LakeSession]) -> None:
    parents = [python_parents(begun()) for _ in range(2)]
    assert parents[0] == parents[1]


def python_parents(session: LakeSession) -> set[int]:
    """The daemons that forked the Python processes of a task."""

    def parent(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        import os

        for _ in batches:
            yield pa.record_batch([pa.array([os.getppid()])], ["parent"])

    rows = session.spark.range(1).mapInArrow(parent, "parent bigint").collect()
    return {row["parent"] for row in rows}


@pytest.mark.spark
def test_an_id_that_was_closed_is_not_begun_again(lake_server: Lake) -> None:
    """The fence: a clone must not bring back what a successor released."""
    sessions = Sessions(lake_server.url, "sharing", lambda *ids: None)
    session = sessions.get()
    session.configure()
    sessions.release([session.ids])
    session.share()
    with pytest.raises(SessionClosed):
        session.query("SELECT 1", "reading")
    sessions.close()
