"""The lake server's port for calls of Java by `workers.lake.api`."""

from __future__ import annotations

import contextlib
import struct
import threading
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError

from workers.lake.api.connection import connect
from workers.lake.connect.lake_url import GATEWAY

_CONNECT: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"


class GatewayServer:
    """The gateway of a starting server: once the gateway listens, Spark Connect is started."""

    def __init__(self, path: Path, *, used: bool) -> None:
        """The JVM writes port and secret to ``path``; ``used``: workers get port and secret."""
        self._path = path
        self._used = used
        self._found: tuple[int, str] | None = None

    def environment(self) -> dict[str, str]:
        """The environment variable that names ``path`` to the JVM."""
        return {"_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._path)}

    def poll(self) -> None:
        """Start Spark Connect as soon as the JVM listens; never waits."""
        if self._found is not None or not self._path.exists():
            return
        written = self._path.read_bytes()  # the JVM renames a complete file to the path
        port, size = struct.unpack_from("!ii", written)
        self._found = port, written[8 : 8 + size].decode()
        self._path.unlink()
        threading.Thread(
            target=_serve, args=[*self._found], name="lake server", daemon=True
        ).start()

    def parameter(self) -> str:
        """The gateway's parameter of the server's URL; empty if workers do not use the gateway."""
        if not self._used or self._found is None:
            return ""
        port, secret = self._found
        return f";{GATEWAY}={port}.{secret}"


def _serve(port: int, secret: str) -> None:
    """Run Spark Connect until the server ends; process and log report the end."""
    gateway = connect(port, secret)
    with contextlib.suppress(Py4JError, OSError):
        main = getattr(gateway.jvm, _CONNECT)
        main.main(gateway.new_array(gateway.jvm.java.lang.String, 0))
    with contextlib.suppress(Py4JError, OSError):
        # Without Spark Connect the server is of no use, and no other code would end the JVM.
        gateway.jvm.java.lang.System.exit(1)
