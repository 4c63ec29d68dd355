"""The Spark sessions of a worker: a session per thread, begun when the thread needs a session."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import grpc
from pyspark.sql.connect.proto import base_pb2, base_pb2_grpc

from catalog.errcodes import ConnectionFailure
from config.limits import SESSION_RELEASE_SECONDS
from workers.lake.connect.errors import SessionClosed, translated
from workers.lake.connect.keep_alive import KeepAlive
from workers.lake.connect.session import LakeSession, channel_builder

CloseCatalogs = Callable[[Iterable[tuple[str, str]]], None]
"""Closes the catalogs of sessions, given as (user_id, session_id)."""


class Sessions:
    """The sessions of one destination, a session per thread."""

    def __init__(
        self,
        url: str,
        user_id: str,
        remember: Callable[[str, str], None],
        conf: Mapping[str, str] | None = None,
        handed_over: tuple[str, str] | None = None,
        *,
        fenced: bool = True,
        shared: bool = True,
        close_catalogs: CloseCatalogs | None = None,
        has_successor: Callable[[tuple[str, str]], bool] = lambda _ids: True,
    ) -> None:
        """``shared``: the sessions share generated code and Python processes (``shared_session``).

        ``fenced``: when a successor has closed a session, this worker is fenced, and ``get`` raises
        from then on. ``has_successor`` says whether a session that was closed from outside was
        closed by a successor: a server also closes sessions by itself. Without commits a worker may
        go on in a new session in any case. ``close_catalogs`` closes the catalogs of sessions
        before the sessions are released: the server would not.
        """
        self._close_catalogs = close_catalogs
        self._has_successor = has_successor
        self._keep_alive = KeepAlive(self._open_sessions)
        self._heeds_fences = fenced
        self._shared = shared
        self._url = url
        self._user_id = user_id
        self._handed_over = handed_over
        self._remember = remember
        self._conf = dict(conf or {})
        self._local = threading.local()
        self._lock = threading.Lock()
        self._all: dict[str, LakeSession] = {}
        self._fenced = False
        self._left: LakeSession | None = None

    def get(self) -> LakeSession:
        """This thread's session; a broken or expired session is released and replaced first.

        Raises 08006 when the old session cannot be released: a call may still be running there.
        Raises 08006 from then on when a successor has released a session: with a new session two
        workers would write at a time.
        """
        session: LakeSession | None = getattr(self._local, "session", None)
        if (
            session is not None
            and session.closed_from_outside
            and self._heeds_fences
            and self._has_successor(session.ids)
        ):
            self._fenced = True
        if self._fenced:
            raise SessionClosed("this worker's lake sessions were closed by its successor")
        if session is not None:
            if session.usable:
                return session
            self.release([session.ids])
            session.close()
            self._unlink(session)
        taken = self._take()
        session = taken or self._begin(self._user_id, str(uuid.uuid4()))
        self._local.session = session
        with self._lock:
            self._all[session.ids[1]] = session
        self._keep_alive.start()
        if taken is None and self._shared:
            session.share()
        return session

    def _begin(self, user_id: str, session_id: str) -> LakeSession:
        self._remember(user_id, session_id)
        return LakeSession(self._url, user_id, session_id, self._conf)

    def _take(self) -> LakeSession | None:
        """The session that was handed over, or None if the server has forgotten the session.

        A closed session is no fence here: this worker never sent a call in the session.
        """
        with self._lock:
            ids, self._handed_over = self._handed_over, None
        if ids is None:
            return None
        session = self._begin(*ids)
        try:
            session.configure()
        except SessionClosed:
            return None
        return session

    def release_for_reuse(self) -> tuple[str, str] | None:
        """Give up this thread's session for reuse by a later worker. Returns its ids.

        No call runs in the session, and no snapshot property is set.

        Beginning a session takes 0.1 s, catalog included. And if sessions share nothing, Spark
        starts Python processes for every session that copies a table, and keeps them until the
        session ends.
        """
        session: LakeSession | None = getattr(self._local, "session", None)
        if session is None or not session.usable:
            return None
        session.set_properties({})
        # The channel ends with the process: see ``WorkerLake.close``.
        self._left = session
        self._unlink(session)
        return session.ids

    def release(self, ids: Iterable[tuple[str, str]]) -> None:
        """Close sessions for good, of this worker or a dead one; calls in them are cancelled."""
        ids = list(ids)
        if not ids:
            return
        if self._close_catalogs is not None:
            self._close_catalogs(ids)
        builder = channel_builder(self._url)
        channel = builder.toChannel()
        try:
            with translated("releasing Spark sessions"):
                stub = base_pb2_grpc.SparkConnectServiceStub(channel)
                for user_id, session_id in ids:
                    request = base_pb2.ReleaseSessionRequest(session_id=session_id)
                    request.user_context.user_id = user_id
                    _tolerating_unknown(stub.ReleaseSession, request, builder.metadata())
        finally:
            channel.close()

    def close(self) -> None:
        """Release every session of this destination; a server that has ended is no error."""
        self._keep_alive.end()
        with self._lock:
            sessions = list(self._all.values())
            self._all.clear()
        with contextlib.suppress(ConnectionFailure):
            self.release(session.ids for session in sessions)
        for session in sessions:
            session.close()

    def _open_sessions(self) -> list[LakeSession]:
        with self._lock:
            return list(self._all.values())

    def _unlink(self, session: LakeSession) -> None:
        self._local.session = None
        with self._lock:
            self._all.pop(session.ids[1], None)


def _tolerating_unknown(call: Any, request: Any, metadata: Any) -> None:
    """Make a call that releases; a session that the server does not know counts as released."""
    try:
        call(request, timeout=SESSION_RELEASE_SECONDS, metadata=metadata)
    except grpc.RpcError as error:
        if "INVALID_HANDLE" not in f"{error}":
            raise
