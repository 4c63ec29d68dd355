"""A starting lake server's gateway for Python, by which it is told to run Spark Connect.

Apart from ``gateway``, what workers do with it: a launcher knows no Spark.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

from py4j.java_gateway import GatewayClient, GatewayParameters, JavaGateway
from py4j.protocol import is_fatal_error

# It tells of a server that went away with a stack, and what it was asked; we say that ourselves.
logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
"""The parameter of a lake server's URL that holds port and secret."""


class _Client(GatewayClient):
    """Connections on which nothing is said but by whoever calls, and no call is made twice.

    Java keeps an object until it hears that Python has dropped it, which py4j says the moment
    Python collects it: in whatever thread that happens, one that answers keepalives say, and for
    as long as a server that is held does not listen. Here the next call says so. And py4j makes a
    call again whose answer did not come: two commits of the same rows went on side by side.
    """

    def __init__(self, gateway_parameters: Any) -> None:
        super().__init__(gateway_parameters=gateway_parameters)
        self.dropped: deque[str] = deque()

    def garbage_collect_object(self, target_id: str) -> None:
        """Take note; no lock, no input, no output."""
        self.dropped.append(target_id)

    def forget_dropped(self) -> None:
        """Let Java drop what Python has."""
        while self.dropped:
            super().garbage_collect_object(self.dropped.popleft())

    def send_command(self, command: str, retry: bool = True, binary: bool = False) -> Any:
        """Once; Py4JNetworkError where no answer comes, with nothing logged of what was asked."""
        del retry, binary  # nothing here is read as bytes
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
        return answer


class GatewayConnections(JavaGateway):
    """A gateway on the loopback interface; each thread that calls has a connection of its own."""

    def _create_gateway_client(self) -> Any:
        self.client = _Client(self.gateway_parameters)
        return self.client


def connect(port: int, secret: str) -> GatewayConnections:
    """Where nothing is connected before the first call."""
    parameters = GatewayParameters(address="127.0.0.1", port=port, auth_token=secret)
    return GatewayConnections(gateway_parameters=parameters)
