"""A REST catalog of two tables whose answers to ``transactions/commit`` a test writes down.

The catalog keeps the tables in memory and takes a call as the specification says: the requirements
of all tables first, then the changes of all tables. A test says for each call whether the call
takes effect, and how the catalog answers.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

CALL: Final = "/v1/transactions/commit"
CUT: Final = 0
"""In place of a status: the connection ends without an answer."""
BEFORE, BATCH, MEDDLED = 4, 5, 6
_RESET: Final = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a call; ``effect``: does the call take effect, if the requirements hold?"""

    status: int
    effect: bool = False
    said: str = "no"


@dataclass(slots=True)
class ScriptedCatalog:
    """``answers`` are those of the next calls; further calls take effect. ``main`` is by table.

    ``summary`` is what the summaries of the batch's snapshots hold.
    """

    branch: str
    answers: list[Answer] = field(default_factory=list)
    calls: list[list[str]] = field(default_factory=list)
    lists_the_call: bool = True
    main: dict[str, int] = field(default_factory=lambda: {"a": BEFORE, "b": BEFORE})
    uri: str = ""
    summary: Mapping[str, str] = field(default_factory=dict)

    def config(self) -> dict[str, Any]:
        endpoints = ["GET /v1/{prefix}/namespaces/{namespace}/tables/{table}"]
        endpoints += ["POST /v1/{prefix}/transactions/commit"] * self.lists_the_call
        return {"defaults": {}, "overrides": {}, "endpoints": endpoints}

    def table(self, name: str) -> dict[str, Any]:
        """Snapshots 4 ← 5 and 4 ← 6; the branch is at 5."""
        snapshots = [
            {
                "snapshot-id": number,
                "sequence-number": number,
                "timestamp-ms": 1_000 + number,
                "summary": {"operation": "append", **({} if number == BEFORE else self.summary)},
                "manifest-list": f"file:/nowhere/{number}.avro",
                "schema-id": 0,
                **({} if number == BEFORE else {"parent-snapshot-id": BEFORE}),
            }
            for number in (BEFORE, BATCH, MEDDLED)
        ]
        head = {"type": "branch", "snapshot-id": self.main[name]}
        batch = {"type": "branch", "snapshot-id": BATCH, "max-ref-age-ms": 2**63 - 1}
        metadata = {
            "format-version": 2,
            "table-uuid": _uuid(name),
            "location": f"file:/nowhere/{name}",
            "last-sequence-number": MEDDLED,
            "last-updated-ms": 2_000,
            "last-column-id": 1,
            "schemas": [_SCHEMA],
            "current-schema-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "default-spec-id": 0,
            "last-partition-id": 999,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "properties": {},
            "current-snapshot-id": self.main[name],
            "refs": {"main": head, self.branch: batch},
            "snapshots": snapshots,
        }
        where = f"file:/nowhere/{name}/{self.main[name]}.metadata.json"
        return {"metadata-location": where, "metadata": metadata, "config": {}}

    def take(self, request: Mapping[str, Any]) -> Answer:
        """Take a call for several tables."""
        changes = request["table-changes"]
        names = [each["identifier"]["name"] for each in changes]
        self.calls.append(names)
        answer = self.answers.pop(0) if self.answers else Answer(204, effect=True)
        if answer.effect:
            for name, change in zip(names, changes, strict=True):
                assert self._holds(name, change["requirements"]), change
            for name, change in zip(names, changes, strict=True):
                (update,) = change["updates"]
                assert (update["action"], update["ref-name"]) == ("set-snapshot-ref", "main")
                self.main[name] = update["snapshot-id"]
        return answer

    def _holds(self, name: str, requirements: list[Mapping[str, Any]]) -> bool:
        """The call must name the table and the snapshot of main, and nothing may have changed."""
        found = {each["type"]: each for each in requirements}
        uuid, ref = found["assert-table-uuid"], found["assert-ref-snapshot-id"]
        same = uuid["uuid"] == _uuid(name) and ref["ref"] == "main"
        return bool(same and ref["snapshot-id"] == self.main[name])


_SCHEMA: Final = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}],
}


def _uuid(name: str) -> str:
    return f"00000000-0000-0000-0000-00000000000{name}"


@contextmanager
def serving(catalog: ScriptedCatalog) -> Iterator[ScriptedCatalog]:
    """The catalog listens on the loopback interface."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.catalog = catalog
    catalog.uri = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, name="scripted catalog", daemon=True).start()
    try:
        yield catalog
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    catalog: ScriptedCatalog

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client has gone: the tests look at the outcome."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        catalog = self.server.catalog
        found = catalog.config() if path == "/v1/config" else catalog.table(path[-1])
        self._say(200, found)

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == CALL
        answer = self.server.catalog.take(request)
        if answer.status == CUT:
            self.close_connection = True
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.connection.close()
        elif answer.status < 300:
            self._say(answer.status)
        else:
            error = {"message": answer.said, "type": "Said", "code": answer.status}
            self._say(answer.status, {"error": error})

    def _say(self, status: int, found: object = None) -> None:
        content = b"" if found is None else json.dumps(found).encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "application/json")
        if status != 204:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
