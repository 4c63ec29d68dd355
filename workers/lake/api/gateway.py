"""A worker's connections to the gateway: to Iceberg's Java API in the embedded lake server.

A PySpark program reaches the Java API as ``spark._jvm``. The embedded server starts as the JVM of
such a program, and workers reach the API by a port on the loopback interface and a secret. Every
process has a gateway of its own (``own_gateway``).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError

from catalog.errcodes import RequiredProcessGone
from workers.lake.api.connection import GatewayConnections
from workers.lake.api.java_api import JavaApi
from workers.lake.api.own_gateway import OwnGateway
from workers.lake.connect.errors import as_replication_error
from workers.lake.connect.lake_url import COMMIT_SERVICE, GATEWAY, url_parameter

_CAUSES: Final = 8
_UNAUTHORIZED: Final = "org.apache.iceberg.exceptions.NotAuthorizedException"


def gateway_of(url: str) -> Gateway | None:
    """The gateway in a lake server's URL, if the URL names a gateway."""
    address = gateway_address(url)
    if address is None:
        return None
    return Gateway(*address, beside=url_parameter(url, COMMIT_SERVICE) is not None)


def gateway_address(url: str) -> tuple[int, str] | None:
    """Port and secret of the gateway in a lake server's URL."""
    found = url_parameter(url, GATEWAY) or url_parameter(url, COMMIT_SERVICE)
    if found is None:
        return None
    port, _, secret = found.partition(".")
    return int(port), secret


class Gateway:
    """This process's gateway: any thread may call. The first call opens the gateway.

    ``beside``: the gateway is a commit service's. Spark's sessions and tasks are on a server of the
    user, which has the same catalog.
    """

    def __init__(self, port: int, secret: str, *, beside: bool = False) -> None:
        self.beside = beside
        self._port = port
        self._secret = secret
        self._lock = threading.Lock()
        self._own: OwnGateway | None = None
        self._api: JavaApi | None = None

    @property
    def connections(self) -> GatewayConnections:
        """The connections to this process's gateway."""
        with self._lock:
            if self._own is None:
                self._own = OwnGateway.open(self._port, self._secret)
            return self._own.connections

    @contextlib.contextmanager
    def api(self, what: str) -> Iterator[JavaApi]:
        """The Java API for one call; an error inside becomes a ReplicationError about ``what``.

        A catalog that lost its tokens is made anew for the next call: Iceberg renews a token by its
        age, and never because the server has refused it.
        """
        with self.translated(what):
            connections = self.connections
            with self._lock:
                if self._api is None:
                    self._api = JavaApi(connections)
                api = self._api
            try:
                yield api
            except Py4JJavaError as error:
                if _is_unauthorized(error):
                    self._forget_catalog(api)
                raise

    def _forget_catalog(self, api: JavaApi) -> None:
        with self._lock:
            if self._api is api:
                self._api = None
                with contextlib.suppress(Py4JError):  # the first error is the one to tell
                    api.forget_catalog()

    @contextlib.contextmanager
    def translated(self, what: str) -> Iterator[None]:
        """Turn a Java error, or a missing answer, into a ReplicationError about ``what``."""
        try:
            self.connections.client.forget_dropped()
            try:
                yield
            except Py4JJavaError as error:
                java_error = JavaError(error)  # reads the causes through the gateway
                raise as_replication_error(java_error, what) from None
        except (Py4JError, OSError):
            raise RequiredProcessGone(
                f"lost the lake server while {what}", detail="Its gateway did not answer."
            ) from None

    def close(self) -> None:
        """Shut this process's gateway down."""
        with self._lock:
            own, self._own, self._api = self._own, None, None
        if own is not None:
            own.close()


def _is_unauthorized(error: Py4JJavaError) -> bool:
    """Does the catalog refuse the token?"""
    thrown: Any = error.java_exception
    return str(thrown.getClass().getName()) == _UNAUTHORIZED


class JavaError(Exception):
    """A Java exception with the causes, in Spark's format."""

    def __init__(self, error: Py4JJavaError) -> None:
        thrown: Any = error.java_exception
        super().__init__(str(thrown.toString()))
        lines = []
        for _ in range(_CAUSES):
            if thrown is None:
                break
            lines.append(f"Caused by: {thrown.toString()}")
            thrown = thrown.getCause()
        self._stacktrace = "\n".join(lines)
