"""One embedded lake server for the whole run, and destinations on it or on its twin."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from workers.lake.connect.lake_url import COMMIT_SERVICE, GATEWAY
from workers.lake.destination import Destination
from workers.lake.memory.destination import MemoryDestination
from workers.lake.memory.lake import MemoryLake
from workers.lake.server.lake_server import LakeServer
from workers.lake.table import Identity, LakeIdent

_number = itertools.count(1)


@dataclass(frozen=True, slots=True)
class LakeSettings:
    """``config.guc.Settings`` as far as a destination looks at it."""

    local_relation_rows: int = 10_000
    track_commit_timestamp: bool = False
    key_cache: int = 0


@dataclass(slots=True)
class Lake:
    """The server of this run: ``url`` for Spark Connect, its files under ``data_dir``."""

    server: LakeServer
    url: str
    data_dir: Path
    sessions: list[tuple[str, str]] = field(default_factory=list)

    @property
    def spark_url(self) -> str:
        """``url`` without the gateway, as of a Spark server that is not ours."""
        return self.url.partition(f";{GATEWAY}=")[0]

    @property
    def beside_url(self) -> str:
        """``url`` as of a commit service beside a Spark server, which here are one."""
        return self.url.replace(f";{GATEWAY}=", f";{COMMIT_SERVICE}=")

    def destination(
        self,
        *,
        subid: int = 1,
        local_relation_rows: int = 10_000,
        track_commit_timestamp: bool = False,
        format_version: int = 2,
        session: tuple[str, str] | None = None,
        direct: bool = True,
        writer: str = "auto",
        beside: bool = False,
    ) -> Destination:
        """A destination of a worker of its own; the caller closes it.

        Not ``direct``: as on a Spark server that is not ours, with no gateway. ``beside``: as on
        one with a commit service beside.
        """
        from workers.lake.iceberg.destination import IcebergDestination

        generation = next(_number)
        with_gateway = self.beside_url if beside else self.url
        return IcebergDestination(
            with_gateway if direct else self.spark_url,
            identity=Identity(subid),
            staging_dir=self.data_dir / "staging" / str(generation),
            settings=LakeSettings(local_relation_rows, track_commit_timestamp),
            format_version=format_version,
            writer=writer,
            remember_session=lambda user_id, session_id: self.sessions.append(
                (user_id, session_id)
            ),
            session=session,
        )


@pytest.fixture(scope="session")
def lake_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A running lake server; use tables and schemas of your own on it."""
    data_dir = tmp_path_factory.mktemp("lake")
    server = LakeServer.start(data_dir, memory=1 << 30)
    try:
        yield Lake(server, server.ready(), data_dir)
    finally:
        server.stop()


@pytest.fixture
def lake_ident() -> LakeIdent:
    """A table name nobody else uses."""
    return LakeIdent("contract", f"t{next(_number)}")


@pytest.fixture
def iceberg(lake_server: Lake) -> Iterator[Callable[..., Destination]]:
    """Makes destinations on the lake server and closes them."""
    made: list[Destination] = []

    def make(**given: Any) -> Destination:
        made.append(lake_server.destination(**given))
        return made[-1]

    yield make
    for destination in made:
        destination.close()


@pytest.fixture
def memory_lake() -> Callable[..., Destination]:
    """Makes destinations on one lake in memory."""
    lake = MemoryLake()

    def make(*, subid: int = 1, local_relation_rows: int = 10_000) -> Destination:
        del local_relation_rows
        return MemoryDestination(lake, identity=Identity(subid))

    return make
