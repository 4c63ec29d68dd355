"""An HTTP proxy before a store or a catalog, which slows, refuses, cuts and forgets.

A request passes to the server unchanged, with the client's name for the host, so that signatures
stay right. Faults wait in a list: the first one that fits a request happens to the request, as
often as the fault says. Whatever kind, the proxy counts requests.

A kind of fault says when a request is lost: before the server has seen the request (``REFUSED``,
``CUT``), or after the server has done it (``FORGOTTEN``, ``CUT_BEHIND``, ``TRUNCATED``). Behind a
fault of the second group a client cannot know whether the request took effect.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import secrets
import socket
import struct
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from tests.lake.signatures import Signatures

_HOP: Final = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "expect"}
)
"""Headers between two neighbours; all others pass."""
_RESET: Final = struct.pack("ii", 1, 0)
_SLOW_DOWN: Final = (
    b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
)
TOKENS: Final = "/v1/oauth/tokens"


class Kind(StrEnum):
    """What happens to a request."""

    REFUSED = "refused"
    CUT = "cut"
    FORGOTTEN = "forgotten"
    CUT_BEHIND = "cut behind"
    TRUNCATED = "truncated"


@dataclass
class Fault:
    """``kind`` happens to the next ``times`` requests of a method whose path has ``path``.

    ``status`` is the answer of a refused and of a forgotten request.
    """

    kind: Kind
    method: str
    path: str
    times: int = 1
    status: int = 503
    met: int = 0

    def fits(self, method: str, path: str) -> bool:
        """Does the fault happen to a request?"""
        if self.met >= self.times or not re.fullmatch(self.method, method):
            return False
        return re.search(self.path, path) is not None


@dataclass
class Tokens:
    """OAuth2's tokens: who has the client's secret gets one, and every other request needs one."""

    client: str = "tests"
    secret: str = "tests-secret"
    seconds: int = 3600
    given: list[str] = field(default_factory=list)
    valid: set[str] = field(default_factory=set)

    def answer(self, form: Mapping[str, str], header: str) -> tuple[int, dict[str, Any]]:
        """The answer to a request for a token."""
        known = (form.get("client_id"), form.get("client_secret")) == (self.client, self.secret)
        if not (known or form.get("subject_token") in self.valid or self.lets_in(header)):
            return 401, {"error": "invalid_client"}
        token = secrets.token_hex(16)
        self.given.append(token)
        self.valid.add(token)
        kind = "urn:ietf:params:oauth:token-type:access_token"
        return 200, {
            "access_token": token,
            "token_type": "bearer",
            "issued_token_type": kind,
            "expires_in": self.seconds,
        }

    def lets_in(self, header: str) -> bool:
        """Has a request a valid token?"""
        return header.removeprefix("Bearer ") in self.valid


Hook = Callable[[str, bytes], None]
"""Called with path and body of a request; the request waits."""


class Turns:
    """Requests pass together, but one of them alone: others see all of its effects, or none."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._waiting = 0
        self._alone = False

    @contextmanager
    def taken(self, *, alone: bool) -> Iterator[None]:
        """The turn of one request."""
        with self._changed:
            self._waiting += alone
            self._changed.wait_for(lambda: self._may_pass(alone=alone))
            self._waiting -= alone
            self._inside += 1
            self._alone = alone
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._alone = False
                self._changed.notify_all()

    def _may_pass(self, *, alone: bool) -> bool:
        return not self._inside if alone else not (self._alone or self._waiting)


class HttpProxy:
    """A proxy on the loopback interface. ``pause`` is added to every request, in seconds.

    ``requests`` are method and path of all requests, in order. A request whose path has ``alone``
    is done while no other one is.
    """

    def __init__(
        self, address: str, tokens: Tokens | None = None, signatures: Signatures | None = None
    ) -> None:
        """With ``tokens`` a request needs one of them, with ``signatures`` it must be signed."""
        self.address = address.removeprefix("http://")
        self.tokens = tokens
        self.signatures = signatures
        self.prefix = ""  # begins all paths but for the configuration's: /v1/<prefix>
        self.pause = 0.0
        self.alone: str | None = None
        self.turns = Turns()
        self.rewrite: Callable[[str, bytes], bytes] | None = None  # of a path and an answer
        self.before: Hook | None = None  # a request that the server is to do
        self.behind: Hook | None = None  # one that it has done
        self.requests: list[tuple[str, str]] = []
        self.faults: list[Fault] = []
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._server = self._listen(0)

    def _listen(self, port: int) -> ThreadingHTTPServer:
        server = _Server(("127.0.0.1", port), _Handler)
        server.proxy = self
        threading.Thread(target=server.serve_forever, name="http proxy", daemon=True).start()
        return server

    def __enter__(self) -> HttpProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        with self._lock:
            open_now = list(self._open)
        for each in open_now:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    @property
    def port(self) -> int:
        """The port on which the proxy listens, also while it is down."""
        return int(self._server.server_address[1])

    @property
    def endpoint(self) -> str:
        """The address for clients."""
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def down(self) -> Iterator[None]:
        """Nobody listens, and open connections end."""
        port = self.port
        self._close()
        try:
            yield
        finally:
            self._server = self._listen(port)

    @contextmanager
    def disturbed(self, *faults: Fault) -> Iterator[Sequence[Fault]]:
        """The faults wait for requests."""
        self.faults += faults
        try:
            yield faults
        finally:
            for fault in faults:
                self.faults.remove(fault)

    def take(self, method: str, path: str) -> Fault | None:
        """Note a request; the fault that happens to it."""
        with self._lock:
            self.requests.append((method, path))
            for fault in self.faults:
                if fault.fits(method, path):
                    fault.met += 1
                    return fault
        return None

    def is_alone(self, path: str) -> bool:
        """Is a request to be done while no other one is?"""
        return self.alone is not None and re.search(self.alone, path) is not None

    def connected(self, client: socket.socket, *, ended: bool = False) -> None:
        """A connection of a client begins or ends."""
        with self._lock:
            (self._open.discard if ended else self._open.add)(client)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    proxy: HttpProxy

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client or the server has gone: the tests look at the outcome."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.server.proxy.connected(self.connection)

    def finish(self) -> None:
        self.server.proxy.connected(self.connection, ended=True)
        super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: ``HttpProxy.requests`` has all."""

    def _pass(self) -> None:
        proxy = self.server.proxy
        body = self._body()
        fault = proxy.take(self.command, self.path)
        if proxy.pause:
            threading.Event().wait(proxy.pause)
        kind = None if fault is None else fault.kind
        if kind is Kind.CUT:
            self._cut()
            return
        if fault is not None and kind is Kind.REFUSED:
            self._say(fault.status)
            return
        if proxy.tokens is not None and not self._let_in(proxy.tokens, body):
            return
        if proxy.signatures is not None and not proxy.signatures.lets_in(
            self.command, self.path, self.headers, body
        ):
            self._refuse(403, "ForbiddenException")
            return
        if proxy.prefix and not self.path.startswith((proxy.prefix, "/v1/config")):
            self._refuse(404, "NoSuchWarehouseException")
            return
        if proxy.before is not None:
            proxy.before(self.path, body)
        with proxy.turns.taken(alone=proxy.is_alone(self.path)):
            status, reason, headers, content = self._ask(body)
        if proxy.behind is not None:
            proxy.behind(self.path, body)
        if proxy.rewrite is not None and status == 200:
            content = proxy.rewrite(self.path, content)
        if kind is Kind.CUT_BEHIND:
            self._cut()
        elif fault is not None and kind is Kind.FORGOTTEN:
            self._say(fault.status)
        else:
            self._answer(status, reason, headers, content, half=kind is Kind.TRUNCATED)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass  # noqa: N815 - the base class's names

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    def _let_in(self, tokens: Tokens, body: bytes) -> bool:
        """Answer a request for a token, or one without a valid token."""
        header = self.headers.get("Authorization", "")
        if self.path.partition("?")[0] == TOKENS:
            form = dict(urllib.parse.parse_qsl(body.decode()))
            status, said = tokens.answer(form, header)
            self._say(status, json.dumps(said).encode())
            return False
        if not tokens.lets_in(header):
            self._refuse(401, "NotAuthorizedException")
            return False
        return True

    def _refuse(self, code: int, kind: str) -> None:
        """A catalog's answer to a request that it does not do."""
        error = {"message": "refused", "type": kind, "code": code}
        self._say(code, json.dumps({"error": error}).encode())

    def _ask(self, body: bytes) -> tuple[int, str, list[tuple[str, str]], bytes]:
        """The server's answer, by a connection of the request's own: none of them is stale."""
        upstream = http.client.HTTPConnection(self.server.proxy.address, timeout=300)
        with closing(upstream):
            prefix = self.server.proxy.prefix
            path = self.path.replace(prefix, "/v1/", 1) if prefix else self.path
            upstream.putrequest(self.command, path, skip_host=True, skip_accept_encoding=True)
            # What is rewritten must not come compressed.
            coding = {"accept-encoding"} if self.server.proxy.rewrite else set()
            for name, value in self.headers.items():
                if name.lower() not in {*_HOP, *coding, "content-length"}:
                    upstream.putheader(name, value)
            if body or "Content-Length" in self.headers:
                upstream.putheader("Content-Length", str(len(body)))
            upstream.endheaders(body or None)
            answer = upstream.getresponse()
            return answer.status, answer.reason, answer.getheaders(), answer.read()

    def _answer(
        self,
        status: int,
        reason: str,
        headers: list[tuple[str, str]],
        content: bytes,
        *,
        half: bool,
    ) -> None:
        self.send_response_only(status, reason)
        for name, value in headers:
            if name.lower() not in _HOP and name.lower() != "content-length":
                self.send_header(name, value)
        length = {name.lower(): value for name, value in headers}.get("content-length")
        of_head = length if self.command == "HEAD" and length else str(len(content))
        if status != 204:
            self.send_header("Content-Length", of_head)
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if half else content)
        self.close_connection = self.close_connection or half

    def _say(self, status: int, content: bytes = b"") -> None:
        """An answer of the proxy; without content as S3 says that it is asked too much."""
        said = content or _SLOW_DOWN
        self.send_response_only(status)
        self.send_header("Content-Type", "application/json" if content else "application/xml")
        self.send_header("Content-Length", str(0 if self.command == "HEAD" else len(said)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(said)

    def _cut(self) -> None:
        """End the connection as a crash would: the client sees a reset."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.server.proxy.connected(self.connection, ended=True)
        os.close(self.connection.detach())
