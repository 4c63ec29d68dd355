"""A gateway of one process: the Java objects of a process end with the process.

py4j keeps an object in the JVM until Python reports the object as dropped. A killed worker reports
nothing, and a worker ends by ``os._exit`` in any case. On the server's gateway, which all processes
share, no entry says which process an object belongs to: 15 ended workers left 50,000 snapshots of
two tables in the heap, 8.5 MB for every worker.

So a process asks the shared gateway for a gateway of its own, with a separate port, a separate
secret and separate objects. The shared gateway knows the new gateway by a name that holds the
process id and the process's start time. Every process that opens a gateway, and the launcher's
watch of the lake server, first shut down the gateways of ended processes, with all their objects::

    worker 812 opens its lake       shared gateway: "pgsub 4026531836 812 7731 9f…"
    worker 812 is killed            its objects stay
    worker 840 opens its lake       812 has ended: its gateway is shut down, its objects are garbage
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError

from config.limits import GATEWAY_SECRET_BYTES
from workers.lake.api.connection import GatewayConnections, brief, connect

_SHARED: Final = "GATEWAY_SERVER"
"""py4j's name for the server of a connection."""
_PREFIX: Final = "pgsub"
_NAME: Final = re.compile(rf"{_PREFIX} (\d+) (\d+) (\d+) ")


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that a gateway belongs to. The fields tell every two processes apart.

    In another container the same process id is a different process: ``namespace`` differs. After
    the end of a process a later process may get the same id: ``started`` differs. ``started`` is
    in clock ticks since the boot, 0 on a system without ``/proc``.
    """

    namespace: int
    pid: int
    started: int

    @classmethod
    def this_process(cls) -> Owner:
        """The calling process."""
        return cls(_namespace(), os.getpid(), _started(os.getpid()) or 0)

    @classmethod
    def parse(cls, name: str) -> Owner | None:
        """The owner from a gateway's name; None for a name of a different kind."""
        found = _NAME.match(name)
        return None if found is None else cls(*map(int, found.groups()))

    def __str__(self) -> str:
        return f"{_PREFIX} {self.namespace} {self.pid} {self.started}"

    def has_ended(self) -> bool:
        """Has the process ended? False if only a process of a different namespace could tell."""
        if self.namespace != _namespace():
            return False
        if self.started:
            return _started(self.pid) != self.started
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        return False


@dataclass(slots=True)
class OwnGateway:
    """The connections of this process, and the way to shut the gateway down."""

    connections: GatewayConnections
    _port: int
    _secret: str
    _name: str

    @classmethod
    def open(cls, port: int, secret: str) -> OwnGateway:
        """Open a gateway of this process through the shared gateway of the lake server."""
        own_secret = secrets.token_urlsafe(GATEWAY_SECRET_BYTES)
        # A process may open several lakes, and every lake has a gateway.
        name = f"{Owner.this_process()} {secrets.token_hex(GATEWAY_SECRET_BYTES)}"
        close_ended(port, secret)
        with brief(port, secret) as shared:
            builder = getattr(shared.jvm.py4j, "GatewayServer$GatewayServerBuilder")()
            server = builder.javaPort(0).authToken(own_secret).build()
            _gateway(shared).putObject(name, server)
            server.start(True)
            own_port = int(server.getListeningPort())
        return cls(connect(own_port, own_secret), port, secret, name)

    def close(self) -> None:
        """Shut the gateway down; Java drops all objects of this process."""
        self.connections.close()
        # After the server's end there is no object left.
        with contextlib.suppress(Py4JError, OSError), brief(self._port, self._secret) as shared:
            _shut_down(_gateway(shared), self._name)


def close_ended(port: int, secret: str) -> int:
    """Shut down the gateways of processes that have ended; the number of gateways."""
    with brief(port, secret) as shared:
        gateway = _gateway(shared)
        ended = [name for name, owner in _owners(gateway) if owner.has_ended()]
        for name in ended:
            _shut_down(gateway, name)
    return len(ended)


def count_objects(port: int, secret: str) -> int:
    """The Java objects that all gateways of the lake server hold.

    A gateway that is shut down while the others are counted holds none.
    """
    with brief(port, secret) as shared:
        gateway = _gateway(shared)
        count = int(gateway.getBindings().size())
        for name, _ in _owners(gateway):
            own = gateway.getObject(name)
            if own is not None:
                count += int(own.getGateway().getBindings().size())
    return count


def _gateway(connections: GatewayConnections) -> Any:
    return JavaObject(_SHARED, connections.client).getGateway()


def _owners(gateway: Any) -> list[tuple[str, Owner]]:
    """The names of the gateways of single processes, and the processes; one call."""
    names = str(gateway.getBindings().keySet().toString()).strip("[]").split(", ")
    return [(name, owner) for name in names if (owner := Owner.parse(name)) is not None]


def _shut_down(gateway: Any, name: str) -> None:
    server = gateway.getObject(name)
    gateway.deleteObject(name)
    if server is not None:
        server.shutdown()


def _namespace() -> int:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def _started(pid: int) -> int | None:
    """When the process started, in clock ticks since the boot; None after the end."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    state, *fields = text.rpartition(")")[2].split()
    # A zombie has ended; its parent has not looked yet.
    return None if state in ("Z", "X") else int(fields[18])
