"""The port of the lake server on which `workers.lake.api` calls Java."""

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
    """The gateway of a server that is starting: waited for, then told to run Spark Connect."""

    def __init__(self, path: Path, *, used: bool) -> None:
        """``path``: where the JVM writes port and secret; ``used``: whether workers get them."""
        self._path = path
        self._used = used
        self._found: tuple[int, str] | None = None

    def environment(self) -> dict[str, str]:
        """What the JVM finds ``path`` by."""
        return {"_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._path)}

    def poll(self) -> None:
        """Have Spark Connect started as soon as the JVM can be told to; waits for nothing."""
        if self._found is not None or not self._path.exists():
            return
        written = self._path.read_bytes()  # moved into place whole
        port, size = struct.unpack_from("!ii", written)
        self._found = port, written[8 : 8 + size].decode()
        self._path.unlink()
        threading.Thread(
            target=_serve, args=[*self._found], name="lake server", daemon=True
        ).start()

    def parameter(self) -> str:
        """What the URL says of it."""
        if not self._used or self._found is None:
            return ""
        port, secret = self._found
        return f";{GATEWAY}={port}.{secret}"


def _serve(port: int, secret: str) -> None:
    """Runs as long as the server; that it has ended, its process says, and why, its log."""
    gateway = connect(port, secret)
    with contextlib.suppress(Py4JError, OSError):
        main = getattr(gateway.jvm, _CONNECT)
        main.main(gateway.new_array(gateway.jvm.java.lang.String, 0))
    with contextlib.suppress(Py4JError, OSError):
        # Without Spark Connect it is no server, and nothing else would end it.
        gateway.jvm.java.lang.System.exit(1)
