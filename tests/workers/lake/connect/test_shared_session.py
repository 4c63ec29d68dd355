"""Sessions that share generated code and Python processes, and servers without clones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import grpc
import pyarrow as pa
import pytest
from pyspark.sql.connect.proto import base_pb2_grpc

from catalog.errcodes import ConnectionFailure
from workers.lake.connect import shared_session
from workers.lake.connect.session import LakeSession
from workers.lake.connect.sessions import Sessions


@pytest.mark.spark
def test_a_new_session_shares_generated_code_and_python_processes(
    begun: Callable[[], LakeSession],
) -> None:
    assert begun().conf("spark.sql.artifact.isolation.enabled") == "false"


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
