"""A Spark Connect server that answers what it is told to, and to everything else never."""

from __future__ import annotations

import threading
from concurrent import futures
from typing import Any

import grpc
from pyspark.sql.connect.proto import base_pb2, base_pb2_grpc


class SilentLake(base_pb2_grpc.SparkConnectServiceServicer):  # type: ignore[misc]  # generated code has no types
    """Listens on a port of its own; as a context manager it is stopped at the end."""

    def __init__(self, *, releases: bool) -> None:
        self.called = threading.Event()
        self._releases = releases
        self._over = threading.Event()
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        base_pb2_grpc.add_SparkConnectServiceServicer_to_server(self, self._server)
        self._port = self._server.add_insecure_port("127.0.0.1:0")

    def __enter__(self) -> SilentLake:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._server.stop(None).wait()

    @property
    def url(self) -> str:
        """What a client connects to."""
        return f"sc://127.0.0.1:{self._port}"

    def ReleaseSession(self, request: Any, context: Any) -> Any:  # noqa: N802 (Spark's name)
        """Answered if the server ``releases``."""
        if not self._releases:
            self._over.wait()
        return base_pb2.ReleaseSessionResponse(session_id=request.session_id)

    def Config(self, request: Any, context: Any) -> Any:  # noqa: N802 (Spark's name)
        """A query's first call; never answered."""
        self.called.set()
        self._over.wait()

    def ExecutePlan(self, request: Any, context: Any) -> Any:  # noqa: N802 (Spark's name)
        """The query; never answered."""
        self.called.set()
        self._over.wait()
        yield from ()
