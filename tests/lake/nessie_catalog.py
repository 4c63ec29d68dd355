"""Nessie 0.99.0 behind its Iceberg REST interface: a catalog that breaks promises.

The server is one jar, fetched once, with a checksum, as the lake server's jars are. Its tables'
names are in memory; the tables' metadata is in the store, written with the keys of the tests.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final

from subscriber.demo.postgres_programs import cache_dir, locked
from tests.lake.lake_stack import S3_IO
from tests.lake.newer_java import without_java
from tests.object_store import REGION, Keys, ObjectStore
from tests.ports import free_port
from tests.waiting import wait_until
from workers.lake.server.jars import resolve
from workers.lake.server.java import find_java
from workers.lake.server.known_jars import Jar
from workers.parent_death import dying_with_parent

_SHA256: Final = "ce9fa33e2878bf5ea3981876b9e6204cabc0362b3dd82326b10e47271a78c417"
_JAR: Final = Jar("org.projectnessie.nessie", "nessie-quarkus", "0.99.0", _SHA256, "runner")
LEAST_JAVA: Final = 21
NO_JAVA: Final = without_java(f"Nessie {_JAR.version}", LEAST_JAVA)
_PATIENCE: Final = 180.0
_WAREHOUSE: Final = "lake"


def nessie_jar() -> Path:
    """The server's jar; fetched at the first use."""
    home = cache_dir() / f"nessie-{_JAR.version}"
    path = home / "jars" / _JAR.file_name
    with locked(home.with_name(f"{home.name}.lock")):
        if not path.is_file():
            resolve(find_java(), [_JAR], home, {})
            shutil.rmtree(home / "cache")  # Ivy's own copy
    return path


@contextmanager
def nessie_catalog(
    java: Path, folder: Path, store: ObjectStore, keys: Keys
) -> Iterator[dict[str, str]]:
    """A running catalog, as ``lake.catalog`` of a configuration file."""
    port, log = free_port(), folder / "nessie.log"
    s3 = {
        "endpoint": store.endpoint,
        "path-style-access": "true",
        "region": REGION,
        "access-key": "urn:nessie-secret:quarkus:tests-keys",
        "request-signing-enabled": "false",  # clients have keys of their own
    }
    given = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": str(port),
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": str(free_port()),
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.catalog.default-warehouse": _WAREHOUSE,
        f"nessie.catalog.warehouses.{_WAREHOUSE}.location": f"s3://{store.bucket}/warehouse",
        **{f"nessie.catalog.service.s3.default-options.{key}": s3[key] for key in s3},
        "tests-keys.name": keys.key,
        "tests-keys.secret": keys.secret,
    }
    options = ["-Xmx512m", *(f"-D{key}={value}" for key, value in given.items())]
    with log.open("wb") as out:
        process = subprocess.Popen(
            dying_with_parent([str(java), *options, "-jar", str(nessie_jar())]),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )

    def answers() -> bool:
        assert process.poll() is None, f"Nessie ended:\n{log.read_text()[-3000:]}"
        return _answers(port)

    try:
        wait_until(answers, _PATIENCE, f"Nessie answers; see {log}")
        yield {
            "type": "rest",
            "uri": f"http://127.0.0.1:{port}/iceberg",
            "warehouse": _WAREHOUSE,
            "io-impl": S3_IO,
            "s3.endpoint": store.endpoint,
            "s3.path-style-access": "true",
            "s3.access-key-id": keys.key,
            "s3.secret-access-key": keys.secret,
            "client.region": REGION,
        }
    finally:
        process.terminate()
        process.wait(30)


def _answers(port: int) -> bool:
    try:
        with closing(HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
            connection.request("GET", f"/iceberg/v1/config?warehouse={_WAREHOUSE}")
            return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
