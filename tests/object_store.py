"""An S3-compatible store on the loopback interface: moto's server, a process of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyarrow import fs

from tests.ports import free_port
from tests.waiting import wait_until
from workers.parent_death import die_with_parent

REGION = "eu-central-1"
"""Not the one that a client takes when it is told of none."""


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A store with one bucket; it lets everybody in, whatever the keys are."""

    endpoint: str
    bucket: str = "staging"

    def environment(self, key: str, secret: str) -> dict[str, str]:
        """What an AWS client needs to know of it, and nothing of this machine's own."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def system(self, **more: Any) -> Any:
        """The tests' own way into it."""
        _, host = self.endpoint.split("://")
        return fs.S3FileSystem(
            access_key="tests",
            secret_key="tests",
            endpoint_override=host,
            scheme="http",
            region=REGION,
            **more,
        )

    def files(self, prefix: str = "") -> list[str]:
        """Names of the files below a prefix; markers of folders are none."""
        chosen = fs.FileSelector(
            f"{self.bucket}/{prefix}".rstrip("/"), recursive=True, allow_not_found=True
        )
        found = self.system().get_file_info(chosen)
        return sorted(each.path for each in found if each.type is fs.FileType.File)


@contextmanager
def object_store(folder: Path) -> Iterator[ObjectStore]:
    """A running store; its log of requests is in ``folder``."""
    port = free_port()
    with (folder / "object_store.log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=die_with_parent,
        )
    try:
        wait_until(lambda: _answers(server, port), 120, f"moto's server listens; see {log.name}")
        store = ObjectStore(f"http://127.0.0.1:{port}")
        store.system(allow_bucket_creation=True).create_dir(store.bucket)
        yield store
    finally:
        server.terminate()
        server.wait(30)


def _answers(server: subprocess.Popen[bytes], port: int) -> bool:
    assert server.poll() is None, "moto's server ended"
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
