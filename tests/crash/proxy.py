"""A TCP proxy before a publisher that understands just enough of the protocol to disturb it.

It can tell what passes, hold a connection when a certain statement comes, stop passing the answers
of certain connections on, put garbage into the next message of a kind that is streamed, cut all
connections, and pass nothing on for a while. Connections through it must use neither TLS nor GSS
(``conninfo`` sees to it).
"""

from __future__ import annotations

import itertools
import socket
import struct
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from tests.fix_publisher import Database

_CHUNK = 2**16
_COPY_DATA = b"d"
XLOG_HEADER = 25
"""Bytes before a streamed message: w, start, end, send time."""

Garble = Callable[[bytes], bytes]
"""A CopyData payload that holds a message, made wrong."""

Watch = Callable[[int, bool, bytes], None]
"""Told of each message before it is passed on: the connection's number, whether it is the
client's, the message. The first is the client's startup packet."""


@dataclass
class Hold:
    """Messages of a kind that do not pass before ``release``; ``arrived`` is set by the first."""

    what: bytes
    arrived: threading.Event = field(default_factory=threading.Event)
    _let_go: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        """Let them pass."""
        self._let_go.set()

    def pass_by(self) -> None:
        """In the connection's thread."""
        self.arrived.set()
        self._let_go.wait(300)


class Proxy:
    """Listens on a port of its own; as a context manager it is closed at the end."""

    def __init__(self, database: Database, watch: Watch = lambda *_: None) -> None:
        self._target = ("127.0.0.1", database.server.port)
        self._database = database
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._links: set[int] = set()
        self._lock = threading.Lock()
        self._garble: tuple[bytes, Garble] | None = None
        self._statement: Hold | None = None
        self._answers: Hold | None = None
        self._open_road = threading.Event()
        self._open_road.set()
        self.garbled = 0
        self.watch = watch
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def conninfo(self) -> str:
        """For whoever connects through the proxy."""
        port = self._listener.getsockname()[1]
        return self._database.server.conninfo(
            self._database.name, port=port, sslmode="disable", gssencmode="disable"
        )

    def garble_next(self, garble: Garble, kind: bytes = b"I") -> None:
        """Make one message of a kind wrong; all that come after it are right again."""
        self._garble = (kind, garble)

    def hold_statement(self, text: str) -> Hold:
        """Keep back the next statement that contains a text."""
        self._statement = Hold(text.encode())
        return self._statement

    def hold_answers(self, appname: str) -> Hold:
        """Keep back the data of COPYs on connections whose application_name ends so, but the first.

        One range gets through, the others wait.
        """
        self._answers = Hold(appname.encode())
        return self._answers

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """Nothing is passed on in either direction meanwhile; connections stay open."""
        self._open_road.clear()
        try:
            yield
        finally:
            self._open_road.set()

    @property
    def connections(self) -> int:
        """How many are open."""
        with self._lock:
            return len(self._links)

    def cut(self) -> int:
        """Cut every connection; new ones are let in. How many were open."""
        with self._lock:
            cut, self._sockets = self._sockets, []
            count = len(self._links)
            self._links.clear()
        for each in cut:
            _shut(each)
        return count

    def close(self) -> None:
        """Cut every connection and stop listening."""
        self._open_road.set()
        for hold in (self._statement, self._answers):
            if hold is not None:
                hold.release()
        _shut(self._listener)
        self.cut()

    # -- threads ---------------------------------------------------------------------------------

    def wait_for_road(self) -> None:
        """Stand still while connections are stalled."""
        self._open_road.wait()

    def _accept(self) -> None:
        for number in itertools.count(1):
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            with self._lock:
                self._sockets += [client, server]
                self._links.add(number)
            link = _Link(self, number, client, server)
            for run in (link.pass_statements, link.pass_answers):
                threading.Thread(target=run, daemon=True).start()

    def ended(self, number: int) -> None:
        """A connection is none any more."""
        with self._lock:
            self._links.discard(number)

    def passed(self, sockets: Collection[socket.socket]) -> None:
        """Both threads of a connection have ended. Kept sockets would use up the descriptors."""
        with self._lock:
            self._sockets = [each for each in self._sockets if each not in sockets]
        for each in sockets:
            each.close()

    def message_to_send(self, payload: bytes) -> bytes:
        """What becomes of a CopyData payload."""
        if self._garble is None or payload[:1] != b"w":
            return payload
        kind, garble = self._garble
        if payload[XLOG_HEADER : XLOG_HEADER + 1] != kind:
            return payload
        self._garble = None
        self.garbled += 1
        return garble(payload)

    def statement_hold(self, message: bytes) -> Hold | None:
        """The hold that a statement runs into, if any; there is one for one statement."""
        hold = self._statement
        if hold is None or hold.what not in message:
            return None
        self._statement = None
        return hold

    def answer_hold(self, startup: bytes) -> Hold | None:
        """The hold for a connection's answers, if its name is meant and it is not the first."""
        hold = self._answers
        if hold is None or hold.what not in startup:
            return None
        if not hold.arrived.is_set():
            hold.arrived.set()
            return None
        return hold


class _Link:
    """One connection: a thread for each direction."""

    def __init__(
        self, proxy: Proxy, number: int, client: socket.socket, server: socket.socket
    ) -> None:
        self._proxy = proxy
        self._number = number
        self._client = client
        self._server = server
        self._startup = b""
        self._threads = itertools.count(1)

    def pass_statements(self) -> None:
        with suppress(OSError, EOFError):
            length = _exactly(self._client, 4)
            self._startup = length + _exactly(self._client, struct.unpack(">I", length)[0] - 4)
            self._proxy.watch(self._number, True, self._startup)
            self._server.sendall(self._startup)
            while True:
                message = _message(self._client)
                self._proxy.watch(self._number, True, message)
                hold = self._proxy.statement_hold(message) if message[:1] == b"Q" else None
                if hold is not None:
                    hold.pass_by()
                self._proxy.wait_for_road()
                self._server.sendall(message)
        self._cut()

    def pass_answers(self) -> None:
        hold: Hold | None = None
        asked = False
        with suppress(OSError, EOFError):
            while True:
                message = _message(self._server)
                if message[:1] == _COPY_DATA:
                    if not asked:
                        hold, asked = self._proxy.answer_hold(self._startup), True
                    if hold is not None:
                        hold.pass_by()
                    payload = self._proxy.message_to_send(message[5:])
                    message = _COPY_DATA + struct.pack(">I", len(payload) + 4) + payload
                self._proxy.watch(self._number, False, message)
                self._proxy.wait_for_road()
                self._client.sendall(message)
        self._cut()

    def _cut(self) -> None:
        self._proxy.ended(self._number)
        for each in (self._client, self._server):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        if next(self._threads) == 2:
            self._proxy.passed((self._client, self._server))


def _shut(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()


def _message(sock: socket.socket) -> bytes:
    head = _exactly(sock, 5)
    return head + _exactly(sock, struct.unpack(">I", head[1:])[0] - 4)


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = sock.recv(min(size - len(data), _CHUNK))
        if not chunk:
            raise EOFError
        data += chunk
    return bytes(data)
