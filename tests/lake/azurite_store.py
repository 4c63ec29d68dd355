"""Azurite: a storage account of Azure on the loopback interface, which checks keys.

The program runs on Node. npm fetches the listed packages once, each with a checksum, into a folder
of the cache. The account has no hierarchical namespace, as an account for blobs.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import subprocess
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from pyarrow import fs

from subscriber.demo.postgres_programs import cache_dir, locked
from tests.ports import free_port
from tests.waiting import wait_until
from workers.parent_death import dying_with_parent

_LISTS: Final = Path(__file__).with_name("azurite")
_MAIN: Final = "node_modules/azurite/dist/src/blob/main.js"
_ACCOUNT: Final = "devstoreaccount1"
KEY: Final = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""The key of the account that every Azurite has; Azure's documentation prints the key."""
NO_NODE: Final = "Azurite needs Node and npm, and one of them was not found"


@dataclass(frozen=True, slots=True)
class Azurite:
    """A running account with one container."""

    endpoint: str
    container: str = "lake"

    @property
    def host(self) -> str:
        """The address of the account in the locations of tables."""
        return f"{_ACCOUNT}.dfs.core.windows.net"

    def location(self, prefix: str) -> str:
        """A location in the container."""
        return f"abfss://{self.container}@{self.host}/{prefix}"

    def address(self) -> dict[str, str]:
        """Iceberg's key for the address of the account."""
        return {f"adls.connection-string.{self.host}": f"{self.endpoint}/{_ACCOUNT}"}

    def keys(self, key: str = KEY) -> dict[str, str]:
        """Iceberg's keys for the account."""
        name, secret = "adls.auth.shared-key.account.name", "adls.auth.shared-key.account.key"
        return {name: _ACCOUNT, secret: key, **self.address()}

    def signed(self, rights: str) -> dict[str, str]:
        """Iceberg's keys for the container: a shared access signature, for an hour."""
        end = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        place = f"/blob/{_ACCOUNT}/{self.container}"
        version, of_container = "2020-12-06", "c"
        words = [rights, "", end, place, "", "", "", version, of_container, *[""] * 7]
        made = hmac.new(base64.b64decode(KEY), "\n".join(words).encode(), hashlib.sha256)
        mark = base64.b64encode(made.digest()).decode()
        parts = {"sp": rights, "se": end, "sv": version, "sr": of_container, "sig": mark}
        return {f"adls.sas-token.{self.host}": urllib.parse.urlencode(parts), **self.address()}

    def system(self) -> Any:
        """The tests' own way into it."""
        place = self.endpoint.removeprefix("http://")
        return fs.AzureFileSystem(  # type: ignore[call-arg]  # the types have other names
            _ACCOUNT,
            account_key=KEY,
            blob_storage_authority=place,
            dfs_storage_authority=place,
            blob_storage_scheme="http",
            dfs_storage_scheme="http",
        )

    def files(self, prefix: str) -> list[str]:
        """The names of the files below a prefix; markers of folders are none."""
        chosen = fs.FileSelector(f"{self.container}/{prefix}", recursive=True, allow_not_found=True)
        found = self.system().get_file_info(chosen)
        paths = (each.path for each in found if each.type is fs.FileType.File)
        return sorted(path.partition("/")[2] for path in paths)


def has_node() -> bool:
    """Are there the programs that Azurite needs?"""
    return _node() is not None and shutil.which("npm") is not None


def _node() -> str | None:
    return shutil.which("node")


def _fetched() -> Path:
    home = cache_dir() / "azurite-3.35.0"
    with locked(home.with_name(f"{home.name}.lock")):
        if not (done := home / ".done").exists():
            home.mkdir(exist_ok=True)
            for each in _LISTS.iterdir():
                shutil.copyfile(each, home / each.name)
            quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"]
            subprocess.run(["npm", "ci", *quiet], cwd=home, check=True)
            done.touch()
    return home / _MAIN


@contextmanager
def azurite(folder: Path) -> Iterator[Azurite]:
    """A running account; its log and its objects are in ``folder``."""
    program, port = _fetched(), free_port()
    store = Azurite(f"http://127.0.0.1:{port}")
    # Without the last word the program would tell its makers of its use.
    words = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--skipApiVersionCheck"]
    words += ["--location", str(folder / "azurite"), "--disableTelemetry"]
    with (folder / "azurite.log").open("wb") as log:
        server = subprocess.Popen(
            dying_with_parent([_node() or "", str(program), *words]),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(lambda: _makes_container(store), 60, f"the store listens; see {log.name}")
        yield store
    finally:
        server.terminate()
        server.wait(30)


def _makes_container(store: Azurite) -> bool:
    try:
        store.system().create_dir(store.container)
    except OSError:
        return False
    return True
