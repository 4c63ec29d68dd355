"""Iceberg's REST catalog on the loopback interface: the server of Iceberg's own tests.

The server's jars are fetched once, with checksums, as the lake server's jars are; Hadoop's classes
are Spark's, S3's client and SQLite's driver are pgsub's. The catalog keeps its tables' names in a
SQLite file, and writes the tables' metadata into the warehouse with credentials of its own.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from subscriber.demo.postgres_programs import cache_dir, locked
from tests.ports import free_port
from tests.waiting import wait_until
from workers.lake.server.jars import resolve, resolved_jars, spark_home
from workers.lake.server.java import find_java
from workers.lake.server.known_jars import Jar
from workers.lake.storage.bucket import FileStore
from workers.parent_death import dying_with_parent

_LIST: Final = Path(__file__).with_name("rest_fixture_jars.txt")
_ON_GOOGLE: Final = Jar(
    "org.apache.iceberg",
    "iceberg-gcp",
    "1.11.0",
    "829defc338bde170cc1690b9943a02e04a3abccca0634b936109c2b3e43ce7f1",
)
PATIENCE: Final = 120.0


@dataclass(frozen=True, slots=True)
class RestCatalog:
    """A running catalog."""

    uri: str
    warehouse: str
    log: Path


def fixture_jars(io: str = FileStore.S3.value) -> list[Path]:
    """The server's class path; ``io`` is Iceberg's class for the store."""
    java = find_java()
    wanted = [_jar(line) for line in _LIST.read_text().splitlines()]
    wanted += [_ON_GOOGLE] if io == FileStore.GCS.value else []
    home = cache_dir() / "rest-fixture"
    paths = [home / "jars" / jar.file_name for jar in wanted]
    with locked(home.with_name(f"{home.name}.lock")):
        missing = [jar for jar, path in zip(wanted, paths, strict=True) if not path.is_file()]
        if missing:
            resolve(java, missing, home, {})
    ours = resolved_jars(java, {}, {"io-impl": io})
    spark = (spark_home() / "jars").glob("hadoop-client-*.jar")
    return [*paths, *(path for path in ours if "spark" not in path.name), *spark]


def _jar(line: str) -> Jar:
    coordinates, sha256 = line.split()
    group, artifact, version, *classifier = coordinates.split(":")
    return Jar(group, artifact, version, sha256, *classifier)


@contextmanager
def rest_catalog(
    folder: Path, warehouse: str, store: Mapping[str, str], env: Mapping[str, str]
) -> Iterator[RestCatalog]:
    """A catalog whose tables are in ``warehouse``; ``store`` are Iceberg's keys for the store.

    ``io-impl`` is one of them.
    """
    port = free_port()
    log = folder / "rest_catalog.log"
    given = {
        "uri": f"jdbc:sqlite:{folder / 'rest_catalog.db'}",
        "warehouse": warehouse,
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "jdbc.schema-version": "V1",
        **store,
    }
    # The server reads its keys from its environment: "__" is a dash there, "_" a dot.
    keys = {
        f"CATALOG_{k.upper().replace('-', '__').replace('.', '_')}": v for k, v in given.items()
    }
    with log.open("wb") as out:
        server = subprocess.Popen(
            dying_with_parent(
                [
                    str(find_java().path),
                    *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                    *("-cp", os.pathsep.join(map(str, fixture_jars(store["io-impl"])))),
                    "org.apache.iceberg.rest.RESTCatalogServer",
                ]
            ),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={
                "PATH": os.environ.get("PATH", ""),
                "CATALOG_REST_PORT": str(port),
                "REST_PORT": str(port),
                **keys,
                **env,
            },
        )
    try:
        wait_until(lambda: _answers(server, port, log), PATIENCE, f"the catalog listens; see {log}")
        yield RestCatalog(f"http://127.0.0.1:{port}", warehouse, log)
    finally:
        server.terminate()
        server.wait(30)


def _answers(server: subprocess.Popen[bytes], port: int, log: Path) -> bool:
    assert server.poll() is None, f"the catalog ended:\n{log.read_text()[-3000:]}"
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
