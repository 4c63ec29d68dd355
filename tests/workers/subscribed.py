"""A subscription in ``r`` with its lake in memory: an apply worker without process or stream."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import SubCreate, Subscription, TableOptions
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from catalog.store_sqlite import CatalogStore
from workers.apply.apply_batch import Applier
from workers.apply.known_fault import KnownFault
from workers.apply.table_checks import TableChecks
from workers.lake.memory.destination import MemoryDestination
from workers.lake.memory.lake import MemoryLake
from workers.lake.table import MAIN, Identity, LakeColumn, LakeIdent, Stamp
from workers.publisher.fingerprint import PublishedTable, TableFile
from workers.publisher.replica_identity import Identities
from workers.tables.writer import LakeWriter

COLUMNS = (LakeColumn("id", pa.int64()), LakeColumn("v", pa.int32()))
EPOCH = "epoch"
FINGERPRINT = "iudt- @1"


@dataclass(slots=True)
class Subscribed:
    """Tables ``public.a`` and ``public.b`` (id, v), empty; ``worker`` starts the next worker.

    ``identity``: the columns of the publisher's replica identities, and whether each is sent.
    ``files``: the files of the tables on the publisher, by name.
    ``delimiters``: what the publisher says of array types; ``asked_types``: of which it was asked.
    """

    store: CatalogStore = field(default_factory=lambda: CatalogStore.open(":memory:"))
    lake: MemoryLake = field(default_factory=MemoryLake)
    sub: Subscription = field(init=False)
    writer: LakeWriter | None = None
    published: dict[tuple[str, str], str] = field(default_factory=dict)
    files: dict[str, TableFile] = field(default_factory=dict)
    identity: dict[str, bool] | None = field(default_factory=lambda: {"id": True})
    delimiters: dict[int, str] = field(default_factory=dict)
    asked_types: list[set[int]] = field(default_factory=list)
    key_under_full: dict[str, bool] | None = None
    applier: Applier | None = None

    def __post_init__(self) -> None:
        row = Subscription("mysub", "host=db", ("pub",), subuuid="u", subslotname="mysub")
        self.sub = self.store.insert_subscription(replace(row, subcreate=SubCreate.READY))
        self.store.origin_create(origin_name(self.sub.oid))
        for name in ("a", "b"):
            self._add(name)

    def _add(self, name: str) -> None:
        rel = self.store.insert_rel(
            SubscriptionRel(
                self.sub.oid, 0, SubRelState.READY, None, "public", name, "public", name
            )
        )
        self.store.update_rel(
            rel.srsubid, rel.srrelid, epoch=EPOCH, copied=True, fingerprint=FINGERPRINT
        )
        self.published["public", name] = FINGERPRINT
        stamp = Stamp(origin_name(self.sub.oid), InvalidXLogRecPtr, EPOCH, InvalidXLogRecPtr)
        ident = LakeIdent("public", name)
        MemoryDestination(self.lake).create_table(
            ident, COLUMNS, owner="u", relid=rel.srrelid, stamp=stamp
        )

    def rel(self, name: str) -> SubscriptionRel:
        """A table's row."""
        return next(rel for rel in self.store.rels(self.sub.oid) if rel.relname == name)

    def distrust(self, name: str) -> None:
        """As if the table had not been copied whole: inserted keys may be there already."""
        self.store.update_rel(self.sub.oid, self.rel(name).srrelid, copied=False)

    def declare(self, name: str, **options: Any) -> None:
        """Options of a table, as the configuration file has them."""
        tables = {**self.sub.tables, f"public.{name}": TableOptions(**options)}
        self.sub = self.store.update_subscription(self.sub.oid, tables=tables)

    def worker(self, dest: MemoryDestination | None = None) -> Applier:
        """The next apply worker; what the one before left is settled, as at its start."""
        if self.writer is not None:
            self.writer.close()
        generation = self.store.next_generation(self.sub.oid)
        dest = dest or MemoryDestination(self.lake, identity=Identity(self.sub.oid))
        self.writer = LakeWriter(
            dest,
            self.store,
            self.sub,
            generation=generation,
            origin=origin_name(self.sub.oid),
            threads=2,
        )
        self.writer.settle_in_flight()
        checks = TableChecks(self.published_tables, self.identities, self.delimiters_of)
        applier = Applier(self.store, self.sub, self.writer, checks)
        applier.known_fault = KnownFault(self.store, self.sub.oid)
        applier.read_rels()
        self.applier = applier
        return applier

    def published_tables(self) -> dict[tuple[str, str], PublishedTable]:
        """How the publisher publishes the tables now."""
        nowhere = TableFile(0, 0)
        return {
            name: PublishedTable(text, self.files.get(name[1], nowhere))
            for name, text in self.published.items()
        }

    def identities(self, relids: Collection[int]) -> Identities:
        """What the publisher says of relations.

        ``key_under_full``, if set, is the answer for every relation; else a relation under FULL has
        no identity.
        """
        if self.key_under_full is not None:
            return dict.fromkeys(relids, self.key_under_full)
        found = {relid: self.identity for relid in relids if self.identity is not None}
        full = {relid for relid in relids if self.applier and is_full(self.applier, relid)}
        return {relid: identity for relid, identity in found.items() if relid not in full}

    def delimiters_of(self, oids: Collection[int]) -> dict[int, str]:
        """What separates elements on the publisher."""
        self.asked_types.append(set(oids))
        return {oid: text for oid, text in self.delimiters.items() if oid in oids}

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        """What readers see of a table."""
        found = self.lake.rows(LakeIdent("public", name))
        return sorted(tuple(row.values()) for row in found)

    def put(self, name: str, *rows: tuple[int, int], ours: bool = False) -> None:
        """Make these a table's rows, as another writer of the lake would, or as a copy of ours."""
        table = self.lake.tables[LakeIdent("public", name)]
        columns = [column.name for column in COLUMNS]
        there = [dict(zip(columns, row, strict=True)) for row in rows]
        self.lake.commit(table, MAIN, there, foreign=not ours)

    def position(self) -> LSN:
        """Where the origin stands."""
        origin = self.store.origin_by_name(origin_name(self.sub.oid))
        assert origin is not None
        return origin.remote_lsn

    def close(self) -> None:
        """End the writer's threads."""
        if self.writer is not None:
            self.writer.close()
        self.store.close()


def is_full(applier: Applier, relid: int) -> bool:
    """Is the relation announced under REPLICA IDENTITY FULL?"""
    relation = applier.relmap.get(relid)
    return relation is not None and relation.replident == "f"
