"""Keeping a subscription's workers from running while a command changes what they stand on.

The launcher stops them and starts none as long as the command's connection is open (``hold`` of
``launcher_requests``). Nothing is stored: however the command ends, its connection ends with it.
Without a launcher nothing runs, and the family lock sees to it that it stays so.
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
    """No worker of the subscription runs inside; 55006 if one does not end in ``wait`` seconds.

    ``lock`` is called where no launcher runs: it keeps one from starting until the command ends.
    """
    connection = dial(data_dir)
    if connection is None:
        lock()
        yield
        return
    with closing(connection):
        _ask(connection, {"id": 1, "op": "hold", "subid": subid, "wait": wait}, wait)
        yield


def _ask(connection: socket, request: dict[str, object], wait: float) -> None:
    """Send and wait for the reply; the connection stays open."""
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
