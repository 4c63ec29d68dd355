"""A slow path to a server: every request arrives a pause later.

The proxy of the tests' faults takes 1.6 ms of a processor for a request, because it reads requests
and answers as wholes. With a hundred requests a batch, the benchmark would measure the proxy. Here
a request is read only as far as necessary to find where the request ends, and an answer passes
unread.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Final

_LENGTH: Final = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)
_CHUNKED: Final = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_END: Final = b"\r\n\r\n"
_PART: Final = 2**16


class SlowPath:
    """A way to the server at ``address``, on the loopback interface; ``pause`` is in seconds."""

    def __init__(self, address: str, pause: float) -> None:
        self.requests = 0
        self.port = 0
        self._host, _, port = address.removeprefix("http://").partition(":")
        self._to, self._pause = int(port), pause

    @property
    def endpoint(self) -> str:
        """The address for clients."""
        return f"http://127.0.0.1:{self.port}"

    async def connected(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        """Pass everything between a client and a connection of the client's own."""
        with suppress(OSError), closing(back):
            there, on = await asyncio.open_connection(self._host, self._to)
            with closing(on):
                answers = asyncio.create_task(_pass_all(there, back))
                with suppress(asyncio.IncompleteReadError):
                    while True:
                        head = await client.readuntil(_END)
                        self.requests += 1
                        await asyncio.sleep(self._pause)
                        on.write(head)
                        await _pass_body(head, client, on)
                answers.cancel()


async def _pass_all(there: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
    with suppress(OSError), closing(back):
        while part := await there.read(_PART):
            back.write(part)
            await back.drain()


async def _pass_body(head: bytes, client: asyncio.StreamReader, on: asyncio.StreamWriter) -> None:
    length = _LENGTH.search(head)
    left = int(length.group(1)) if length else 0
    while _CHUNKED.search(head) or left:
        if not left:
            line = await client.readuntil(b"\r\n")
            on.write(line)
            size = int(line.split(b";")[0], 16)
            if not size:
                await _pass_trailers(client, on)
                break
            left = size + 2
        part = await client.read(min(left, _PART))
        if not part:
            raise asyncio.IncompleteReadError(b"", left)
        left -= len(part)
        on.write(part)
        await on.drain()


async def _pass_trailers(client: asyncio.StreamReader, on: asyncio.StreamWriter) -> None:
    line = b""
    while line != b"\r\n":
        line = await client.readuntil(b"\r\n")
        on.write(line)


@contextmanager
def slow_path(address: str, pause: float) -> Iterator[SlowPath]:
    """A path that is open, in a thread of its own."""
    path, ready = SlowPath(address, pause), threading.Event()
    loop, end = asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        server = await asyncio.start_server(path.connected, "127.0.0.1", 0, limit=_PART)
        path.port = server.sockets[0].getsockname()[1]
        ready.set()
        await end.wait()
        server.close()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run, name="slow path", daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield path
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()
