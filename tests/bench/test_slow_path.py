"""A slow path passes every kind of request and answer, later; and counts them."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.bench.slow_path import SlowPath, slow_path

PAUSE = 0.05
LONG = b"x" * 300_000


class Server(BaseHTTPRequestHandler):
    """Answers with what it got."""

    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT  # noqa: N815 - the base class's names

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def path() -> Iterator[SlowPath]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with slow_path(f"http://127.0.0.1:{server.server_port}", PAUSE) as made:
            yield made
        server.shutdown()


@pytest.fixture
def client(path: SlowPath) -> Iterator[http.client.HTTPConnection]:
    made = http.client.HTTPConnection("127.0.0.1", path.port, timeout=30)
    yield made
    made.close()


def test_requests_of_a_connection_come_late_and_are_counted(
    path: SlowPath, client: http.client.HTTPConnection
) -> None:
    began = time.monotonic()
    for method, body in (("GET", b""), ("PUT", b"short"), ("PUT", LONG), ("PUT", b"")):
        client.request(method, "/x", body or None)
        assert client.getresponse().read() == body
    assert path.requests == 4
    assert time.monotonic() - began >= 4 * PAUSE


def test_a_body_in_chunks_passes(path: SlowPath, client: http.client.HTTPConnection) -> None:
    for parts in ([b"one", LONG, b"\r\n0\r\n\r\n"], [b"two"]):
        client.request("PUT", "/x", iter(parts), encode_chunked=True)
        assert client.getresponse().read() == b"".join(parts)
    assert path.requests == 2


def test_a_body_waits_for_the_server_to_ask(
    path: SlowPath, client: http.client.HTTPConnection
) -> None:
    client.putrequest("PUT", "/x")
    client.putheader("Expect", "100-continue")
    client.putheader("Content-Length", "4")
    client.endheaders()
    assert client.sock.recv(100).startswith(b"HTTP/1.1 100 ")
    client.send(b"body")
    assert client.getresponse().read() == b"body"
    assert path.requests == 1


def test_no_server_ends_the_connection() -> None:
    with (
        slow_path("http://127.0.0.1:1", PAUSE) as nowhere,
        closing(http.client.HTTPConnection("127.0.0.1", nowhere.port, timeout=30)) as gone,
    ):
        gone.request("GET", "/x")
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            gone.getresponse()
    assert nowhere.requests == 0
