"""Keeps a subscription's workers stopped while a command changes slot, positions or tables.

The launcher stops the workers and starts none while the command's connection is open (``hold`` of
``requests``). Nothing is stored: the connection ends with the command, in any case. Without a
launcher no worker runs, and the lock of the data directory keeps launchers out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from socket import socket

from catalog.errcodes import ConnectionFailure, ObjectInUse
from config.limits import HOLD_ANSWER_SECONDS, SOCKET_CHUNK_BYTES
from workers.process.launcher_socket import LineReader, dial, encode, reply_error


@contextmanager
def hold_workers(
    data_dir: Path, subid: int, *, wait: float, lock: Callable[[], object]
) -> Iterator[None]:
    """Inside, no worker of the subscription runs; 55006 if a worker does not end in ``wait``
    seconds.

    Without a launcher ``lock`` is called, to keep launchers out until the command ends.
    """
    connection = dial(data_dir)
    if connection is None:
        lock()
        yield
        return
    with closing(connection):
        _request(connection, {"id": 1, "op": "hold", "subid": subid, "wait": wait}, wait)
        yield


def _request(connection: socket, request: dict[str, object], wait: float) -> None:
    """Send the request and wait for the reply; the connection stays open."""
    deadline = time.monotonic() + wait + HOLD_ANSWER_SECONDS
    reader = LineReader()
    try:
        connection.settimeout(HOLD_ANSWER_SECONDS)
        connection.sendall(encode(request))
        while True:
            connection.settimeout(max(deadline - time.monotonic(), 0.001))
            data = connection.recv(SOCKET_CHUNK_BYTES)
            if not data:
                raise ConnectionFailure("the launcher ended", hint="Try again.")
            for reply in reader.feed(data):
                error = reply_error(reply)
                if error is not None:
                    raise _with_hint(error) if isinstance(error, ObjectInUse) else error
                return
    except TimeoutError:
        raise ConnectionFailure("the launcher does not answer") from None
    except OSError as error:
        raise ConnectionFailure(
            "lost the connection to the launcher", detail=f"{error.strerror}."
        ) from None


def _with_hint(error: ObjectInUse) -> ObjectInUse:
    error.hint = "Look into the log for what it is waiting for, then try again."
    return error
