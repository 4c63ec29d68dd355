"""The benchmark's cases without a server: sides that only pretend, and take no time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from catalog.pg_lsn import LSN
from tests.bench.core import Bench
from tests.bench.figures import Begun
from tests.bench.load import Change, Written

ROWS = 10_000
DELAY = timedelta(seconds=0.5)


class Pretended:
    """A side on which everything is visible when it is asked for."""

    def __init__(self, name: str, role: str) -> None:
        self.name = name
        self.with_options: dict[str, Any] = {}
        self.moves: list[tuple[datetime, LSN]] = []
        self.tables: dict[str, str] = {}
        self.dropped: list[str] = []
        self.options: dict[str, dict[str, Any]] = {}
        self.formats: list[int] = []
        self.writers: list[str] = []
        self.layouts: list[dict[str, Any]] = []
        self.with_tables: dict[str, Any] = {}
        self._format = 2
        self.writer = "auto"
        self._requests = 0
        self._role = role

    @contextmanager
    def new_tables(self, format_version: int = 2, writer: str = "auto") -> Iterator[None]:
        self._format, self.writer = format_version, writer
        yield
        self._format, self.writer = 2, "auto"

    @contextmanager
    def quiet(self) -> Iterator[None]:
        yield

    def requests(self) -> int:
        self._requests += 9
        return self._requests

    def subscribe(
        self,
        publication: str,
        tables: dict[str, str],
        *,
        copy_data: bool,
        options: dict[str, dict[str, Any]] | None = None,
    ) -> Begun:
        assert copy_data
        assert not self.tables, "it has a subscription"
        self.tables = tables
        self.options = options or {}
        self.formats += [self._format] * len(tables)
        self.writers.append(self.writer)
        self.layouts.append(self.with_tables)
        return Begun(0.0, 0.0)

    def unsubscribe(self) -> None:
        self.tables = {}

    def wait_synced(self, tables: list[str]) -> None:
        assert set(tables) == set(self.tables)

    def wait_visible(self, table: str, target: LSN) -> None:
        assert table in self.tables
        if not self.moves or target >= self.moves[-1][1]:
            self.moves.append((datetime.now(UTC) + DELAY, LSN(target + 1)))

    def publications_of(self, table: str) -> list[tuple[datetime, LSN]]:
        assert table in self.tables
        return self.moves

    def count(self, table: str) -> int:
        return ROWS

    def sum(self, table: str, column: str) -> int:
        return ROWS

    def query_alone(self, table: str) -> float:
        return 0.25

    def scan(self, table: str, columns: str) -> tuple[float, int]:
        return (1.0 if table.endswith("_fresh") else 1.25), 7

    def rewritten(self, table: str) -> str:
        return f"{table}_fresh"

    def drop(self, table: str) -> None:
        self.dropped.append(table)

    def files(self, table: str) -> dict[str, float]:
        return {"files": 3}

    def application_name(self) -> str:
        return self.name

    def pids(self) -> dict[int, str]:
        return {os.getpid(): self._role}

    def cpu_seconds(self) -> float:
        return 0.0

    def on_disk(self) -> dict[str, float]:
        return {"spool_mb": 12.0}


class Publisher:
    """Takes every statement."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    def run(self, *statements: str) -> None:
        self.statements += statements

    def value(self, query: str, args: Any = None) -> int:
        return ROWS


class Rehearsal(Bench):
    """The benchmark at a thousandth, without a server."""

    def __init__(self) -> None:
        self.publisher: Any = Publisher()
        self.ours: Any = Pretended("ours", "apply worker")
        self.native: Any = Pretended("native", "logical replication apply worker")
        self.scale = 0.001
        self.native_share = 1.0
        self.native_rounds = None
        self.results: list[dict[str, Any]] = []
        self.tell = lambda entry: None
        self._cases = 0
        self._position = 0

    @contextmanager
    def held(self, side: Any) -> Iterator[None]:
        yield

    def transaction(self, *statements: str) -> LSN:
        self.publisher.run(*statements)
        self._position += 10
        return LSN(self._position)

    def load(self, seconds: float, rate: float, change: Change) -> Written:
        return [(self.transaction(), datetime.now(UTC)) for _ in range(int(seconds * rate))]
