"""One heartbeat of the embedded lake server: it answers, and ended processes leave nothing.

A process that the launcher forks for this purpose calls ``beat`` again and again. A beat is a
statement through Spark Connect and some calls through the gateway: the two ways of a worker. Every
beat uses the same session. The statement needs no task, so no busy core delays the answer.

A beat also removes what nobody else can remove:

* sessions without a request for an hour, with their catalogs: a killed command leaves its session.
  A worker never uses a session that was unused for half an hour;
* the gateways of ended processes, with their Java objects (``own_gateway``);
* the empty folder that Spark leaves of every ended session, for machine learning models.

And a beat has a server that has become quiet give its garbage back (``idle_memory``).
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError

from catalog.errcodes import RequiredProcessGone
from config.limits import MODEL_FOLDER_SECONDS, SESSION_FORGET_SECONDS
from workers.lake.api.connection import GatewayConnections, brief
from workers.lake.api.gateway import gateway_address
from workers.lake.api.own_gateway import close_ended
from workers.lake.api.session_catalogs import close_catalogs, service, session_key
from workers.lake.connect.sessions import Sessions
from workers.lake.server.idle_memory import QuietTime, give_back, processor_seconds

USER_ID: Final = "pgsub watch"
_MODELS: Final = "spark_connect_model_cache"
_FACTORY: Final = "java.lang.management.ManagementFactory"
_POOL: Final = "java.lang.management.MemoryPoolMXBean"


class Heartbeat:
    """Beats of the server with process id ``pid``; ``scratch`` is the server's temporary folder."""

    def __init__(self, url: str, pid: int, scratch: Path, session_id: str) -> None:
        self._sessions = Sessions(
            url, USER_ID, lambda *_: None, handed_over=(USER_ID, session_id), fenced=False
        )
        self._address = gateway_address(url)
        self._process = Path("/proc") / str(pid)
        self._models = scratch / _MODELS
        self._quiet = QuietTime()

    def beat(self) -> dict[str, int]:
        """Ask once, by both ways; what the server uses. Raises 08006 without an answer."""
        self._sessions.get().query("SELECT 1", "asking whether the lake server lives")
        health = self._of_process()
        if self._address is None:
            return health
        try:
            close_ended(*self._address)
            with brief(*self._address) as connections:
                active = _forget_unused_sessions(connections)
                self._give_back_if_quiet(connections)
                health["sessions"] = len(active)
                used, limit = heap_after_collection(connections)
                health |= {"heap_bytes": used, "heap_limit_bytes": limit}
        except (Py4JError, OSError):
            raise RequiredProcessGone(
                "lost the lake server while asking whether it lives",
                detail="Its gateway did not answer.",
            ) from None
        self._remove_model_folders(active)
        return health

    def _of_process(self) -> dict[str, int]:
        """Descriptors and threads, on a system with ``/proc``."""
        try:
            limits = (self._process / "limits").read_text(encoding="ascii")
            descriptors = sum(1 for _ in (self._process / "fd").iterdir())
            threads = sum(1 for _ in (self._process / "task").iterdir())
        except OSError:
            return {}
        soft = limits.partition("Max open files")[2].split(maxsplit=1)[0]
        return {
            "descriptors": descriptors,
            "descriptor_limit": int(soft) if soft.isdigit() else 0,
            "threads": threads,
        }

    def _give_back_if_quiet(self, connections: GatewayConnections) -> None:
        """Shrink the heap of a server without work. A Java that cannot do so keeps the heap."""
        used = processor_seconds(self._process)
        if used is not None and self._quiet.is_due(time.monotonic(), used):
            with contextlib.suppress(Py4JJavaError):
                give_back(connections)

    def _remove_model_folders(self, active: set[str]) -> None:
        """Remove the empty folders of sessions that are gone; a new session may not be listed."""
        with contextlib.suppress(OSError):
            for folder in self._models.iterdir():
                with contextlib.suppress(OSError):
                    age = time.time() - folder.stat().st_mtime
                    if folder.name not in active and age > MODEL_FOLDER_SECONDS:
                        folder.rmdir()


def _forget_unused_sessions(connections: GatewayConnections) -> set[str]:
    """Close sessions that nobody uses any more; the ids of the remaining sessions."""
    spark = service(connections)
    manager = spark.sessionManager()
    running = str(spark.listActiveExecutions().toString())
    infos = manager.listActiveSessions()
    active = set()
    limit = time.time() - SESSION_FORGET_SECONDS
    for at in range(infos.size()):
        info = infos.apply(at)
        session_id = str(info.sessionId())
        if info.lastAccessTimeMs() > limit * 1000 or session_id in running:
            active.add(session_id)
            continue
        key = session_key(connections, info.userId(), session_id)
        holder = manager.getIsolatedSessionIfPresent(key)
        if holder.isDefined():
            close_catalogs(connections, holder.get())
            manager.closeSession(key, False)
    return active


def heap_after_collection(connections: GatewayConnections) -> tuple[int, int]:
    """Bytes in use after the last full collection, and the most there may be; zeros if unknown.

    The beans' classes are hidden from reflection; the methods of their interface are not.
    """
    jvm = connections.jvm
    of_class = jvm.java.lang.Class.forName
    pools = of_class(_FACTORY).getMethod("getMemoryPoolMXBeans", None).invoke(None, None)
    usage = of_class(_POOL).getMethod("getCollectionUsage", None)
    name = of_class(_POOL).getMethod("getName", None)
    for pool in pools:
        if any(word in str(name.invoke(pool, None)) for word in ("Old Gen", "Tenured")):
            after: Any = usage.invoke(pool, None)
            if after is not None:
                return int(after.getUsed()), max(int(after.getMax()), 0)
    return 0, 0
