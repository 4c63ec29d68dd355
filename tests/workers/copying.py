"""Copies into the lake in memory: a publisher of one table, and the place of a sync worker."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from catalog.pg_lsn import LSN
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from catalog.store_sqlite import CatalogStore
from config.guc import Settings
from workers.lake.copy_task import BINARY
from workers.lake.memory.destination import MemoryDestination
from workers.lake.sources import source_of
from workers.lake.table import LakeIdent
from workers.process.worker_process import WorkerProcess
from workers.publisher.connection import WalReceiverConn
from workers.publisher.interfaces import Row
from workers.sync import copy_table
from workers.tables.position import stamp_at

START = LSN(1000)
BLOCK = 8192
IDENT = LakeIdent("public", "a")
BRANCH = "pgsub_1_1_1"


@dataclass(slots=True)
class PublisherTwin:
    """A publisher with one table of ``blocks`` blocks whose COPY sends ``data``, given as CSV.

    Its ``columns`` are integers; ``listed`` are the numbers of those that are published. A table
    that is not ``lockable`` has grants on its columns only.
    """

    data: list[bytes]
    blocks: int = 1
    commands: list[str] = field(default_factory=list)
    server_version: int = 18
    columns: Sequence[str] = ("id",)
    key: Collection[str] = ("id",)
    listed: str | None = None
    lockable: bool = True

    def command(self, sql: str) -> None:
        self.commands.append(sql)

    def copy_out(self, sql: str) -> Iterator[bytes]:
        self.commands.append(sql)
        yield from as_asked(sql, self.data)

    def host(self) -> dict[str, str]:
        return {"host": "db", "port": "5432"}

    def exec(self, sql: str) -> list[Row]:
        if sql.endswith("LIMIT 0"):
            self.commands.append(sql)
            return []
        identity = str(len(self.key)) if self.key else None
        answers: dict[str, list[Row]] = {
            "block_size": [(str(BLOCK),)],
            "pg_relation_size": [(str(self.blocks * BLOCK),)],
            "pg_export_snapshot": [("00000003-0000001B-1",)],
            "pg_relation_filenode": [("0",)],
            "has_table_privilege": [("0" if self.lockable else "1",)],
            "INNER JOIN": [("16389", "d", "r", "16402")],
            "array_length": [(self.listed,)],
            "pg_attribute": [
                (str(n), name, "23", "-1", "t", "t" if name in self.key else "f", "f", identity)
                for n, name in enumerate(self.columns, 1)
            ],
            "pg_type": [("23", "pg_catalog", "int4", "b", "0", "-1", "0", ",")],
            "pg_get_expr": [(None,)],
            "f.relfilenode": [
                (str(n), name, "23", "-1", "f", "f", None, "16389:5", None, "700", None)
                for n, name in enumerate(self.columns, 1)
            ],
            "object_names": [("0",)],
            "pubinsert": [("public", "a", "t", "t", "t", "t", "f", None, "1", "16402", "7")],
        }
        return [rows for words, rows in answers.items() if words in sql][-1]


def as_asked(statement: str, lines: Iterable[bytes]) -> Iterator[bytes]:
    """Lines of integers as CSV, in the form that a COPY asks for."""
    if not statement.endswith(BINARY):
        yield from lines
        return
    yield b"PGCOPY\n\xff\r\n\0" + bytes(8)
    for line in lines:
        fields = line.rstrip(b"\n").split(b",")
        sent = [struct.pack(">ii", 4, int(field)) if field else b"\xff" * 4 for field in fields]
        yield struct.pack(">h", len(sent)) + b"".join(sent)
    yield b"\xff\xff"


class LinkTwin:
    """Keeps what a worker reports."""

    def __init__(self) -> None:
        self.progress: list[dict[str, Any]] = []

    def report(self, *, progress: dict[str, Any]) -> None:
        self.progress.append(progress)


@dataclass(slots=True)
class Copying:
    """A sync worker's place, without process and connection."""

    dest: MemoryDestination
    process: WorkerProcess
    link: LinkTwin
    sub: Subscription
    rel: SubscriptionRel
    waited: bool | None = None

    def copy(self, conn: PublisherTwin) -> tuple[SubscriptionRel, list[int]]:
        """Copy to a branch; the row, and the keys that are on the branch then. ``waited``: had the
        rows no commit at the end of the copy?

        What ``copy_source`` answers is CSV whatever is asked for.
        """
        source, dest = self.dest.copy_source, self.dest
        if source is not None:
            dest.copy_source = lambda statement: as_asked(statement, source(statement))
        try:
            rel, lake, _, rows = copy_table.copy_table(
                self.process,
                cast("WalReceiverConn", conn),
                self.sub,
                self.rel,
                dest,
                BRANCH,
                START,
            )
            self.waited = rows.waiting is not None
            with rows.discarded_on_error():
                rows.write_before_batch(stamp_at(rel, START, source_of(self.sub, rel)))
        finally:
            dest.copy_source = source
        return rel, [row["id"] for row in self.dest.lake.rows(lake.ident, BRANCH)]


def copying(tmp_path: Path) -> Iterator[Copying]:
    """Table ``public.a`` in ``d``, not in the lake yet; 64 kB to a range."""
    store = CatalogStore.open(":memory:")
    sub = store.insert_subscription(Subscription("mysub", "dbname=shop", ("pub",), subuuid="u"))
    rel = store.insert_rel(
        SubscriptionRel(sub.oid, 0, SubRelState.INIT, None, "public", "a", "public", "a")
    )
    rel = store.update_rel(sub.oid, rel.srrelid, epoch="epoch")
    link = LinkTwin()
    settings = Settings.model_validate({"copy_range_bytes": "64kB", "copy_workers": 3})
    process = WorkerProcess(tmp_path, sub.oid, rel.srrelid, 1, store, cast("Any", link), settings)
    yield Copying(MemoryDestination(), process, link, sub, rel)
    store.close()
