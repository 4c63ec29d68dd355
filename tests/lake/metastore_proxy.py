"""A TCP proxy before a Hive Metastore: it can make the metastore an old one, and hold a commit.

A client without locks names, beside the change of a table, the metadata file that the change is
based on. An old metastore does not know the word that the file's name stands behind, and takes no
notice; so neither does a new one that is told another word.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Final

from tests.crash.proxy import Hold
from tests.lake.hive_metastore import HiveMetastore

_CHUNK: Final = 2**16
_WORD: Final = b"expected_parameter_key"
_OTHER: Final = b"somebody_parameter_key"
_CHANGE: Final = b"alter_table_with_environment_context"


class MetastoreProxy:
    """Listens on a port of its own; as a context manager it is closed at the end.

    ``old``: the metastore compares no metadata files.
    """

    def __init__(self, metastore: HiveMetastore, *, old: bool = False) -> None:
        self.old = old
        self._target = ("127.0.0.1", metastore.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._hold: Hold | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> MetastoreProxy:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._hold is not None:
            self._hold.release()
        for each in (self._listener, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    @property
    def uri(self) -> str:
        """What ``lake.catalog`` names."""
        return f"thrift://127.0.0.1:{self._listener.getsockname()[1]}"

    def hold_change(self) -> Hold:
        """Keep back the next change of a table, which is a commit."""
        self._hold = Hold(_CHANGE)
        return self._hold

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
                for run in (self._ask, self._answer):
                    threading.Thread(target=run, args=(client, server), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        kept = b""
        with suppress(OSError):
            while data := client.recv(_CHUNK):
                hold = self._hold
                if hold is not None and hold.what in data and not hold.arrived.is_set():
                    hold.pass_by()
                data = kept + data
                end = len(data) - _begun(data)
                data, kept = data[:end], data[end:]
                server.sendall(data.replace(_WORD, _OTHER) if self.old else data)
            server.shutdown(socket.SHUT_WR)

    def _answer(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(_CHUNK):
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)


def _begun(data: bytes) -> int:
    """How many bytes at the end may be the word's first. No request ends with such bytes."""
    return next((n for n in range(len(_WORD) - 1, 0, -1) if data.endswith(_WORD[:n])), 0)
