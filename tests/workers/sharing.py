"""Subscriptions whose tables share a lake table in memory; see ``Sharing``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import SubCreate, Subscription, TableOptions
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from catalog.store_sqlite import CatalogStore
from tests.workers.subscribed import COLUMNS, EPOCH, is_full
from tests.workers.transactions import relation, row
from workers.apply.apply_batch import Applier
from workers.apply.table_checks import TableChecks
from workers.lake.memory.destination import MemoryDestination
from workers.lake.memory.lake import MemoryLake
from workers.lake.sources import source_of, with_source_column
from workers.lake.table import SHARED, SOURCE_COLUMN, Identity, LakeIdent, Stamp
from workers.proto.messages import Insert, Message
from workers.publisher.fingerprint import PublishedTable, TableFile, published_as
from workers.tables.shared_tables import add_source_to_table
from workers.tables.table_locks import TableLocks
from workers.tables.writer import LakeWriter

TARGET = LakeIdent("public", "all of them")
Rows = list[tuple[int, int]]


@dataclass(slots=True)
class Sharing:
    """A subscription whose tables all go to ``TARGET``; each has its own catalog here, as in a
    data directory of its own, unless ``store`` is given. ``declared`` are options of its tables."""

    lake: MemoryLake
    uuid: str
    names: Sequence[str] = ("a",)
    data_dir: Path | None = None
    threads: int = 2
    declared: Mapping[str, Any] = field(default_factory=dict)
    store: CatalogStore = field(default_factory=lambda: CatalogStore.open(":memory:"))
    sub: Subscription = field(init=False)
    writers: list[LakeWriter] = field(default_factory=list)

    def __post_init__(self) -> None:
        options = TableOptions(to=("public", TARGET.table), shared=True, **self.declared)
        row = Subscription(
            f"sub_{self.uuid}",
            "host=db",
            ("pub",),
            subuuid=self.uuid,
            subcreate=SubCreate.READY,
            tables={f"public.{name}": options for name in self.names},
        )
        self.sub = self.store.insert_subscription(row)
        self.store.origin_create(origin_name(self.sub.oid))
        dest = MemoryDestination(self.lake)
        for name in self.names:
            rel = self.store.insert_rel(
                SubscriptionRel(
                    self.sub.oid,
                    0,
                    SubRelState.READY,
                    None,
                    "public",
                    name,
                    TARGET.schema,
                    TARGET.table,
                )
            )
            rel = self.store.update_rel(rel.srsubid, rel.srrelid, epoch=EPOCH, copied=True)
            stamp = self.stamp(rel, InvalidXLogRecPtr)
            if dest.table(TARGET) is None:
                known = with_source_column(COLUMNS)
                more = dest.generated_columns(TARGET, known, options.generated)
                columns = with_source_column((*COLUMNS, *more))
                dest.create_table(TARGET, columns, owner=SHARED, relid=1, stamp=stamp)
            add_source_to_table(dest, TableLocks(None), TARGET, self.sub, stamp)

    def stamp(self, rel: SubscriptionRel, lsn: LSN) -> Stamp:
        origin = origin_name(self.sub.oid)
        return Stamp(origin, lsn, EPOCH, InvalidXLogRecPtr, source_of(self.sub, rel))

    def rel(self, name: str) -> SubscriptionRel:
        return next(rel for rel in self.store.rels(self.sub.oid) if rel.relname == name)

    def worker(self, dest: MemoryDestination | None = None) -> Applier:
        """The next apply worker; what the one before left is settled, as at its start."""
        generation = self.store.next_generation(self.sub.oid)
        writer = LakeWriter(
            dest or MemoryDestination(self.lake, identity=Identity(self.sub.oid)),
            self.store,
            self.sub,
            generation=generation,
            origin=origin_name(self.sub.oid),
            threads=self.threads,
            locks=TableLocks(self.data_dir),
        )
        self.writers.append(writer)
        writer.settle_in_flight()
        rels = self.store.rels(self.sub.oid)
        published = {
            (rel.nspname, rel.relname): PublishedTable(
                published_as(rel.fingerprint) or "", TableFile(0, 0)
            )
            for rel in rels
        }
        applier = Applier(
            self.store,
            self.sub,
            writer,
            TableChecks(
                lambda: published,
                lambda relids: {
                    relid: {"id": True} for relid in relids if not is_full(applier, relid)
                },
                lambda oids: {},
            ),
        )
        applier.read_rels()
        return applier

    def rows(self, name: str = "a") -> Rows:
        """What readers see of a source."""
        source = source_of(self.sub, self.rel(name))
        found = [row for row in self.lake.rows(TARGET) if row[SOURCE_COLUMN] == source]
        return sorted((row["id"], row["v"]) for row in found)

    def position(self, name: str = "a") -> int:
        found = MemoryDestination(self.lake).table(TARGET)
        assert found is not None
        stamp = found.position(source_of(self.sub, self.rel(name)))
        assert stamp is not None
        return int(stamp.lsn)

    def close(self) -> None:
        for writer in self.writers:
            writer.close()
        self.store.close()


A, B = relation(1, "a", "id", "v"), relation(2, "b", "id", "v")


def insert(key: int, value: int, relid: int = 1) -> Message:
    """An INSERT into a table of two numbers."""
    return Insert(relid, row(str(key), str(value)))


Make = Callable[..., Sharing]
