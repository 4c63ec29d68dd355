"""The HTTP listener of ``metrics_listen``, in threads of the launcher.

The launcher's loop never waits for the listener: the listener asks the loop through the launcher's
socket, as a command does. The listener binds in its thread: an address in use costs a warning and
another attempt after some seconds, not the replication. Where the log goes to its file alone, the
terminal is shown the warning too, and the end of the trouble. At most ``HTTP_CLIENTS`` requests run
at a time, and a client that sends nothing is hung up on, so a flood costs a few threads.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from catalog.errcodes import ReplicationError
from catalog.store_sqlite import CatalogStore
from config.monitor_limits import (
    HTTP_CLIENTS,
    HTTP_IDLE_SECONDS,
    LISTEN_RETRY_SECONDS,
)
from subscriber.messages import Notice, notice, warning
from subscriber.status.pages import Page, Pages

log = logging.getLogger(__name__)

Get = Callable[[str, str], Page]
"""Target and ``Accept`` of a request → the page."""

Show = Callable[[Notice], None]
"""Shows a message to the user, beside the log."""


_REMEDY: Final = (
    "Name another address with metrics_listen, or end the process that uses it. pgsub tries again."
)


class StatusListener:
    """Listens on an address until ``stop``; ``address`` is host and port."""

    def __init__(self, address: tuple[str, int], data_dir: Path, show: Show | None = None) -> None:
        self._address = address
        self._data_dir = data_dir
        self._show = show or (lambda _message: None)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._server: _Server | None = None
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def start(self) -> None:
        """Start the thread and return at once."""
        self._thread.start()

    def stop(self) -> None:
        """Close the listener; a running request is left to end by itself."""
        with self._lock:
            self._stopping.set()
            server = self._server
        if server is not None:
            server.shutdown()
        self._thread.join()

    def _run(self) -> None:
        try:
            store = CatalogStore.open(self._data_dir, must_exist=True)
        except ReplicationError as error:
            log.warning("action=metrics_listen sqlstate=%s %s", error.code, error.primary)
            self._show(warning(f"no metrics: {error.primary}", hint=error.hint))
            return
        try:
            server = self._bind(Pages(self._data_dir, store).get)
            if server is not None:
                with server:
                    self._serve(server)
        finally:
            store.close()

    def _serve(self, server: _Server) -> None:
        """Serve, unless ``stop`` came before: ``stop`` waits for a server that is known."""
        with self._lock:
            if self._stopping.is_set():
                return
            self._server = server
        server.serve_forever()

    def _bind(self, get: Get) -> _Server | None:
        host, port = self._address
        tried = False
        while not self._stopping.is_set():
            try:
                server = _Server(self._address, get)
            except OSError as error:
                if not tried:
                    self._warn(f'"{host}", port {port}: {error.strerror or error}')
                tried = True
                self._stopping.wait(LISTEN_RETRY_SECONDS)
            else:
                place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
                log.info("action=metrics_listen metrics and health on http://%s", place)
                if tried:
                    self._show(notice(f"metrics and health on http://{place}"))
                return server
        return None

    def _warn(self, why: str) -> None:
        """Tell the log and the user that the listener has no address yet."""
        text = f"could not bind metrics address {why}"
        log.warning("action=metrics_listen %s", text, extra={"HINT": _REMEDY})
        self._show(warning(text, hint=_REMEDY))


class _Server(ThreadingHTTPServer):
    """Serves pages, a few requests at a time."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], get: Get) -> None:
        family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][0]
        self.address_family = family
        self.get = get
        self._free = threading.BoundedSemaphore(HTTP_CLIENTS)
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind, without the look-up of the host's name that ``HTTPServer`` makes."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, or hang up if all are busy."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and free the place."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no event; an error of ours shows at the client as no answer."""
        log.debug("action=metrics_request", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "pgsub"
    sys_version = ""
    timeout = HTTP_IDLE_SECONDS

    def do_GET(self) -> None:
        """Send a page."""
        self._send(with_content=True)

    def do_HEAD(self) -> None:
        """Send a page's head."""
        self._send(with_content=False)

    def _send(self, *, with_content: bool) -> None:
        page = self.server.get(self.path, self.headers.get("Accept", ""))
        self.send_response(page.status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if with_content:
            self.wfile.write(page.content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log no request."""
