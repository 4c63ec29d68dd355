"""Ours on an S3 store behind a REST catalog, as ``make bench-lake`` measures it.

The store is versitygw: moto's server, which the tests use, takes 30 ms for a request, and would be
what is measured. versitygw is built once, which takes five minutes of a core, and kept in the
cache; its modules are those that the pinned sum names. The catalog is that of the tests.

With a ``pause`` both are reached through proxies that wait before each request, as on the way to a
store in another building.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from subscriber.demo.postgres_programs import cache_dir, locked
from tests.bench.local_lake import SCHEMA
from tests.bench.sides import Ours
from tests.fix_publisher import Database
from tests.lake.http_proxy import HttpProxy
from tests.lake.lake_stack import S3_IO
from tests.lake.rest_catalog import rest_catalog
from tests.object_store import REGION, Keys, ObjectStore
from tests.ports import free_port
from tests.waiting import wait_until
from workers.parent_death import dying_with_parent

_VERSION: Final = "v1.8.0"
_SUM: Final = "h1:au+wI+aybno/STsQiSm35Uu6Q6iK5MWReQxgO6SEMFc="
_MODULE: Final = "github.com/versity/versitygw"
_BUCKET: Final = "lake"
_KEYS: Final = Keys("bench", "bench-secret")


def versitygw() -> Path:
    """The store's program, built at the first use."""
    home = cache_dir() / f"versitygw-{_VERSION}"
    program = home / "versitygw"
    with locked(home.with_name(f"{home.name}.lock")):
        if not program.exists():
            _build(home)
    return program


def _build(home: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise SystemExit(
            f"make bench-lake builds {_MODULE} {_VERSION} once and needs Go, 1.24 or later"
        )
    work = home.with_name(f"{home.name}.build")
    env = {"GOPATH": str(work / "path"), "GOCACHE": str(work / "cache"), "GOBIN": str(work)}
    words = ["install", "-modcacherw", f"{_MODULE}/cmd/versitygw@{_VERSION}"]
    subprocess.run([go, *words], check=True, env={**os.environ, **env})
    told = subprocess.run(
        [go, "version", "-m", str(work / "versitygw")], check=True, capture_output=True, text=True
    ).stdout
    if f"{_MODULE}\t{_VERSION}\t{_SUM}" not in told:
        raise SystemExit(f"{_MODULE} {_VERSION} is not what it was: {_SUM} was expected\n{told}")
    home.mkdir(exist_ok=True)
    shutil.move(work / "versitygw", home / "versitygw")
    shutil.rmtree(work)


@contextmanager
def _store(folder: Path) -> Iterator[ObjectStore]:
    program, files, port = versitygw(), folder / "store", free_port()
    (files / _BUCKET).mkdir(parents=True)
    env = {"ROOT_ACCESS_KEY": _KEYS.key, "ROOT_SECRET_KEY": _KEYS.secret}
    words = ["--port", f"127.0.0.1:{port}", "--region", REGION, "--quiet", "posix", str(files)]
    with (folder / "store.log").open("wb") as log:
        server = subprocess.Popen(
            dying_with_parent([str(program), *words]),
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(lambda: _listens(port), 60, f"the store listens; see {log.name}")
        yield ObjectStore(f"http://127.0.0.1:{port}", _BUCKET)
    finally:
        server.terminate()
        server.wait(30)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


class OursOnS3(Ours):
    """``pgsub`` with tables on S3 behind a REST catalog at ``uri``."""

    def __init__(
        self,
        publisher: Database,
        folder: Path,
        lake: Any,
        uri: str,
        proxies: Sequence[HttpProxy] = (),
    ) -> None:
        """``proxies`` are those that ours goes through; the benchmark itself does not."""
        self._uri, self._proxies = uri, proxies
        super().__init__(publisher, folder, lake)

    def metadata(self, table: str) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(self._address(table)) as answer:  # noqa: S310 - our own
                return dict(json.load(answer)["metadata"])
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return {}
            raise

    def drop(self, table: str) -> None:
        """The catalog forgets the table; the store goes with its folder."""
        request = urllib.request.Request(self._address(table), method="DELETE")  # noqa: S310 - our own
        urllib.request.urlopen(request).close()  # noqa: S310 - our own server

    def requests(self) -> int:
        return sum(len(proxy.requests) for proxy in self._proxies)

    def _address(self, table: str) -> str:
        return f"{self._uri}/v1/namespaces/{SCHEMA}/tables/{table}"


@contextmanager
def on_s3(folder: Path, pause: float) -> Iterator[Callable[[Database, Path], Ours]]:
    """The servers, and how the side is made that uses them."""
    with ExitStack() as running:
        store = running.enter_context(_store(folder))
        own = {"io-impl": S3_IO, "s3.endpoint": store.endpoint, "s3.path-style-access": "true"}
        place, environment = f"s3://{_BUCKET}/warehouse", store.environment(*_KEYS)
        catalog = running.enter_context(rest_catalog(folder, place, own, environment))
        ends = {"s3.endpoint": store.endpoint, "uri": catalog.uri}
        proxies: list[HttpProxy] = []
        if pause:
            for name, address in ends.items():
                proxy = running.enter_context(HttpProxy(address))
                proxy.pause = pause
                ends[name] = proxy.endpoint
                proxies.append(proxy)
        lake = {
            "type": "rest",
            "warehouse": place,
            "s3.path-style-access": "true",
            "s3.access-key-id": _KEYS.key,
            "s3.secret-access-key": _KEYS.secret,
            "client.region": REGION,
            **ends,
        }
        yield lambda database, data: OursOnS3(
            database, data, {"catalog": lake}, catalog.uri, proxies
        )
