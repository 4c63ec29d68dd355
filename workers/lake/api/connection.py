"""Connections to the gateway that a lake server's JVM opens for Python.

The launcher tells the starting server through the gateway to run Spark Connect; workers call Java
through the gateway. The module knows no Spark, because a launcher imports none.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from py4j.java_gateway import GatewayClient, GatewayParameters, JavaGateway
from py4j.protocol import Py4JError, is_fatal_error

# py4j logs a lost server with a stack and with the call; pgsub reports the loss.
logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)

_OBJECT: Final = re.compile(r"!?y[rlahtg](o\d+)\s*")
"""An answer that names an object, as py4j sends it: the object's kind, and the name in Java."""


class _Client(GatewayClient):
    """Connections on which only a caller sends, and no call is sent twice.

    Java keeps an object until Python reports the object as dropped. py4j sends the report at the
    moment of the garbage collection: in any thread, for example in the thread that answers
    keepalives, and for as long as a stopped server does not listen. Here the next call sends the
    report. And py4j repeats a call without an answer: two commits of the same rows ran side by
    side.
    """

    def __init__(self, gateway_parameters: Any) -> None:
        super().__init__(gateway_parameters=gateway_parameters)
        self.dropped: deque[str] = deque()
        self.returned: list[str] | None = None

    def garbage_collect_object(self, target_id: str) -> None:
        """Note the object; no lock, no input, no output."""
        self.dropped.append(target_id)

    def forget_dropped(self) -> None:
        """Let Java drop the objects that Python has dropped.

        Several threads may do so at once: a thread may find the last object gone.
        """
        while True:
            try:
                target_id = self.dropped.popleft()
            except IndexError:
                return
            super().garbage_collect_object(target_id)

    def send_command(self, command: str, retry: bool = True, binary: bool = False) -> Any:
        """Send a call once; Py4JNetworkError if no answer comes, and the call is not logged."""
        del retry, binary  # no answer is read as bytes
        connection = self._get_connection()
        try:
            answer = connection.send_command(command)
        except BaseException:
            connection.close(False)
            raise
        if is_fatal_error(answer):
            connection.close(False)
        else:
            self._give_back_connection(connection)
        if self.returned is not None and (named := _OBJECT.fullmatch(answer)):
            self.returned.append(named.group(1))
        return answer

    def forget_returned(self) -> None:
        """Let Java drop every object that was returned since ``returned`` became a list."""
        returned, self.returned = self.returned or [], None
        for target_id in returned:
            super().garbage_collect_object(target_id)


class GatewayConnections(JavaGateway):
    """A gateway on the loopback interface, with one connection for each calling thread."""

    def _create_gateway_client(self) -> Any:
        self.client = _Client(self.gateway_parameters)
        return self.client


def connect(port: int, secret: str) -> GatewayConnections:
    """Connections that open at the first call."""
    parameters = GatewayParameters(address="127.0.0.1", port=port, auth_token=secret)
    return GatewayConnections(gateway_parameters=parameters)


@contextlib.contextmanager
def brief(port: int, secret: str) -> Iterator[GatewayConnections]:
    """Connections for a few calls of one thread, on the gateway that all processes share.

    Java drops all objects of the block at the end. Python itself reports an object only when the
    garbage collector finds the object, and a process may end before.
    """
    connections = connect(port, secret)
    connections.client.returned = []
    try:
        yield connections
    finally:
        with contextlib.suppress(Py4JError, OSError):  # the server may have ended
            connections.client.forget_returned()
        connections.close()
