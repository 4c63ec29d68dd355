"""Trino 476 as a reader of a REST catalog with tables on S3: a server, and a client of its API.

The server's archive, 821 MB, is fetched once, with a checksum, as the lake server's jars are. The
classes of the server and of the Iceberg connector are kept in the cache, 464 MB. 476 is the newest
server that Maven has. It needs a newer Java than Spark does.
"""

from __future__ import annotations

import json
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa

from subscriber.demo.postgres_programs import cache_dir, locked
from tests.lake.newer_java import without_java
from tests.ports import free_port
from tests.waiting import wait_until
from workers.lake.server.jars import resolve
from workers.lake.server.java import find_java
from workers.lake.server.known_jars import Jar
from workers.parent_death import dying_with_parent

_SHA256: Final = "cfd5accde17e8ebd251eeeb78aed1f490e77bb3a164d95a0f454bf8a7c1cbd3f"
_SERVER: Final = Jar("io.trino", "trino-server", "476", _SHA256, extension="tar.gz")
LEAST_JAVA: Final = 24
NO_JAVA: Final = without_java(f"Trino {_SERVER.version}", LEAST_JAVA)
_PATIENCE: Final = 300.0
_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "decimal": Decimal,
    "timestamp": datetime.fromisoformat,
}
"""How a value is read that JSON has no type for, by the name of its type."""


class TrinoError(Exception):
    """A query failed; the text is Trino's."""


@dataclass(frozen=True, slots=True)
class Trino:
    """A running server, with the catalog ``lake``."""

    port: int
    log: Path

    def query(self, text: str) -> pa.Table:
        """The rows of a query."""
        columns: list[dict[str, Any]] = []
        rows: list[list[Any]] = []
        answer = self._ask("POST", "/v1/statement", text)
        while True:
            columns = answer.get("columns") or columns
            rows += answer.get("data") or []
            if "error" in answer:
                raise TrinoError(answer["error"]["message"])
            if "nextUri" not in answer:
                return _table(columns, rows)
            answer = self._ask("GET", urlsplit(answer["nextUri"]).path)

    def is_ready(self) -> bool:
        """Has the server started, and a node that works?"""
        try:
            return not self._ask("GET", "/v1/info")["starting"] and bool(self.query("SELECT 1"))
        except (OSError, TrinoError):
            return False

    def _ask(self, method: str, path: str, body: str | None = None) -> dict[str, Any]:
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=300)) as connection:
            connection.request(method, path, body, {"X-Trino-User": "tests"})
            answer = connection.getresponse()
            said = answer.read()
        if answer.status != 200:
            raise TrinoError(f"{answer.status} {answer.reason}: {said.decode(errors='replace')}")
        return dict(json.loads(said))


def _table(columns: list[dict[str, Any]], rows: list[list[Any]]) -> pa.Table:
    found: dict[str, list[Any]] = {}
    for number, column in enumerate(columns):
        read = _READ.get(column["type"].partition("(")[0], lambda value: value)
        values = [row[number] for row in rows]
        found[column["name"]] = [None if value is None else read(value) for value in values]
    return pa.table(found)


def trino_home() -> Path:
    """The folder with Trino's classes; fetched at the first use."""
    home = cache_dir() / f"trino-{_SERVER.version}-{_SERVER.sha256[:8]}"
    with locked(home.with_name(f"{home.name}.lock")):
        if not home.exists():
            # Beside its place: a rename is whole or not at all.
            with tempfile.TemporaryDirectory(prefix="trino-", dir=home.parent) as name:
                [archive] = resolve(find_java(), [_SERVER], Path(name), {})
                _unpack(archive, Path(name)).rename(home)
    return home


def _unpack(archive: Path, folder: Path) -> Path:
    """A folder with what is needed.

    The archive is unpacked whole first, because plugins have files in common, as hard links.
    """
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    whole, needed = folder / f"trino-server-{_SERVER.version}", folder / "needed"
    (needed / "plugin").mkdir(parents=True)
    for name in ("lib", "plugin/iceberg"):
        (whole / name).rename(needed / name)
    return needed


def catalog_properties(catalog: Mapping[str, str]) -> dict[str, str]:
    """The file of docs/reading.md for a REST catalog with tables on S3."""
    return {
        "connector.name": "iceberg",
        "iceberg.catalog.type": "rest",
        "iceberg.rest-catalog.uri": catalog["uri"],
        "iceberg.rest-catalog.warehouse": catalog["warehouse"],
        "iceberg.rest-catalog.case-insensitive-name-matching": "true",
        "fs.native-s3.enabled": "true",
        "s3.endpoint": catalog["s3.endpoint"],
        "s3.path-style-access": catalog["s3.path-style-access"],
        "s3.region": catalog["client.region"],
        "s3.aws-access-key": catalog["s3.access-key-id"],
        "s3.aws-secret-key": catalog["s3.secret-access-key"],
    }


@contextmanager
def trino(java: Path, folder: Path, catalog: Mapping[str, str]) -> Iterator[Trino]:
    """A running server whose catalog ``lake`` is the one of these keys of ``lake.catalog``."""
    port, home, log = free_port(), trino_home(), folder / "trino.log"
    server = {
        "coordinator": "true",
        "node-scheduler.include-coordinator": "true",
        "http-server.http.port": str(port),
        "discovery.uri": f"http://127.0.0.1:{port}",
        "catalog.config-dir": str(folder / "catalogs"),
        "plugin.dir": str(home / "plugin"),
        "node.environment": "tests",
        "node.id": "tests",
        "node.bind-ip": "127.0.0.1",
        "node.internal-address": "127.0.0.1",
    }
    (folder / "catalogs").mkdir(parents=True)
    _write(folder / "catalogs" / "lake.properties", catalog_properties(catalog))
    _write(folder / "config.properties", server)
    words = ["-Xmx1G", "--add-modules", "jdk.incubator.vector"]
    words += ["--enable-native-access=ALL-UNNAMED", f"-Dconfig={folder / 'config.properties'}"]
    words += ["-cp", str(home / "lib" / "*"), "io.trino.server.TrinoServer"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            dying_with_parent([str(java), *words]),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    running = Trino(port, log)

    def ready() -> bool:
        assert process.poll() is None, f"Trino ended:\n{log.read_text()[-3000:]}"
        return running.is_ready()

    try:
        wait_until(ready, _PATIENCE, f"Trino is ready; see {log}", pause=1)
        yield running
    finally:
        process.terminate()
        process.wait(60)


def _write(path: Path, properties: Mapping[str, str]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
