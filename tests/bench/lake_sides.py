"""Ours on an S3 store behind a REST catalog, as ``make bench-lake`` measures it.

The store is versitygw: moto's server, which most tests use, takes 30 ms for a request, and would be
what is measured. The catalog is that of the tests.

With a ``pause`` both are reached by a path on which every request arrives later (``slow_path``), as
on the way to a store in another building.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.bench.local_lake import SCHEMA
from tests.bench.sides import Ours
from tests.bench.slow_path import SlowPath, slow_path
from tests.fix_publisher import Database
from tests.lake.lake_stack import file_stack


class OursOnS3(Ours):
    """``pgsub`` with tables on S3 behind a REST catalog at ``uri``."""

    def __init__(
        self,
        publisher: Database,
        folder: Path,
        lake: Any,
        uri: str,
        paths: Sequence[SlowPath] = (),
    ) -> None:
        """``paths`` are those that ours goes by; the benchmark itself does not."""
        self._uri, self._paths = uri, paths
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
        return sum(path.requests for path in self._paths)

    def _address(self, table: str) -> str:
        return f"{self._uri}/v1/namespaces/{SCHEMA}/tables/{table}"


@contextmanager
def on_s3(folder: Path, pause: float) -> Iterator[Callable[[Database, Path], Ours]]:
    """The servers, and how the side is made that uses them."""
    with file_stack(folder) as stack, ExitStack() as running:
        keys, paths = stack.direct_keys(), list[SlowPath]()
        for end in ("uri", "s3.endpoint") if pause else ():
            paths.append(running.enter_context(slow_path(keys[end], pause)))
            keys[end] = paths[-1].endpoint
        lake = {"catalog": keys}
        yield lambda database, data: OursOnS3(database, data, lake, stack.catalog.uri, paths)
