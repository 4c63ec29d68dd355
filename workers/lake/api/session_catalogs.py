"""Close the catalogs of Spark sessions on the embedded server.

Every Spark session creates a catalog at the first use: for the embedded lake a connection to
SQLite, for other catalogs a connection to a database or a pool of HTTP connections. Spark does not
close a catalog together with the session, and a connection that only the garbage collector knows
keeps its file descriptors. 60 sessions left 120 descriptors, for ever.

So the catalogs are closed first, and the session after the catalogs. A process that dies in between
leaves an open session, and the next process does both again. A call that still runs in the session
fails at its next step, as the call does at the end of the session.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable
from typing import Any, Final

from py4j.protocol import Py4JError

from catalog.errcodes import ReplicationError
from config.limits import SESSION_RELEASE_SECONDS
from workers.lake.api.connection import GatewayConnections
from workers.lake.api.gateway import Gateway, gateway_of
from workers.lake.api.iceberg_internals import private_value

_SERVICE: Final = "SparkConnectService$"
_SINGLETON: Final = "MODULE$"
_CACHING: Final = "org.apache.iceberg.CachingCatalog"


def close_catalogs_of(url: str, sessions: Iterable[tuple[str, str]]) -> None:
    """Close the catalogs of sessions of the lake server at ``url``.

    The catalogs are closed through a gateway that is opened for this call. The call does nothing
    without a gateway, and does not wait for ever: see ``SessionCatalogs.close``.
    """
    gateway = gateway_of(url)
    if gateway is None:
        return
    try:
        SessionCatalogs(gateway).close(sessions)
    finally:
        gateway.close()


class SessionCatalogs:
    """Closes catalogs through the gateway of the process."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def close(self, sessions: Iterable[tuple[str, str]]) -> None:
        """Close the catalogs of the sessions (user_id, session_id).

        A catalog waits for a running statement of its database, so the call waits for
        ``SESSION_RELEASE_SECONDS`` at most. The release of the session, which is a fence, may not
        wait for a database.
        """
        closing = threading.Thread(
            target=self._close, args=[list(sessions)], name="catalogs", daemon=True
        )
        closing.start()
        closing.join(SESSION_RELEASE_SECONDS)

    def _close(self, sessions: list[tuple[str, str]]) -> None:
        with (
            contextlib.suppress(ReplicationError),  # a server that is gone holds no catalog
            self._gateway.translated("closing catalogs of Spark sessions"),
        ):
            connections = self._gateway.connections
            manager = service(connections).sessionManager()
            for user_id, session_id in sessions:
                key = session_key(connections, user_id, session_id)
                holder = manager.getIsolatedSessionIfPresent(key)
                if holder.isDefined():
                    close_catalogs(connections, holder.get())


def service(connections: GatewayConnections) -> Any:
    """Spark Connect's service in the server."""
    package = connections.jvm.org.apache.spark.sql.connect.service
    return getattr(getattr(package, _SERVICE), _SINGLETON)


def session_key(connections: GatewayConnections, user_id: str, session_id: str) -> Any:
    """The two ids of a session, as the service names a session."""
    return connections.jvm.org.apache.spark.sql.connect.service.SessionKey(user_id, session_id)


def close_catalogs(connections: GatewayConnections, holder: Any) -> None:
    """Close every catalog that the session has created."""
    catalogs = holder.session().sessionState().catalogManager()
    none = getattr(getattr(connections.jvm.scala, "None$"), _SINGLETON)
    names = catalogs.listCatalogs(none)
    for at in range(names.size()):
        catalog = catalogs.catalog(names.apply(at))
        # Spark's interface of a catalog has no end. A catalog of Iceberg holds the real catalog.
        with contextlib.suppress(Py4JError):  # a catalog of a different kind, or nothing to close
            _without_cache(catalog.icebergCatalog()).close()


def _without_cache(catalog: Any) -> Any:
    """The catalog behind the cache of tables, which has no end either."""
    if str(catalog.getClass().getName()) == _CACHING:
        return private_value(catalog, "catalog")
    return catalog
