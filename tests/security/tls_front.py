"""TLS before a publisher whose binaries have none: answers SSLRequest, then passes bytes on."""

from __future__ import annotations

import asyncio
import ssl
import struct
import threading
from contextlib import suppress
from typing import Final

import trustme

from tests.fix_publisher import Database

_SSL_REQUEST: Final = struct.pack(">II", 8, 80877103)
_CHUNK: Final = 2**18


class TlsFront:
    """Listens on a port of its own with a certificate; a context manager closes it.

    A client that does not ask for TLS is turned away, so nothing comes through in the clear.
    ``names`` are the application names of those that came through.
    """

    def __init__(self, database: Database, certificate: trustme.LeafCert) -> None:
        self.port = 0
        self.names: list[str] = []
        self._target = database.server.port
        self._clients: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="tls front", daemon=True)
        self.show(certificate)

    def __enter__(self) -> TlsFront:
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(self, *exc: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def show(self, certificate: trustme.LeafCert) -> None:
        """The certificate from here on."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(context)
        self._context = context

    def hang_up(self) -> None:
        """End every connection."""
        for client in list(self._clients):
            self._loop.call_soon_threadsafe(client.transport.abort)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _listen(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", limit=_CHUNK)
        return int(self._server.sockets[0].getsockname()[1])

    async def _close(self) -> None:
        self._server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await task

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            if await reader.readexactly(len(_SSL_REQUEST)) == _SSL_REQUEST:
                writer.write(b"S")
                await writer.start_tls(self._context)
                await self._forward(reader, writer)
        writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(_CHUNK)
        if not first:  # it left as soon as it had seen the certificate
            return
        self.names.append(_application_name(first))
        self._clients.add(writer)
        from_server, to_server = await asyncio.open_connection(
            "127.0.0.1", self._target, limit=_CHUNK
        )
        try:
            to_server.write(first)
            ways = [_pass_on(reader, to_server), _pass_on(from_server, writer)]
            tasks = [asyncio.create_task(way) for way in ways]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
        finally:
            self._clients.discard(writer)
            to_server.transport.abort()


def _application_name(startup: bytes) -> str:
    words = startup[8:].decode().split("\0")
    pairs = dict(zip(words[::2], words[1::2], strict=False))
    return pairs.get("application_name", "")


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(_CHUNK):
            target.write(data)
            await target.drain()
