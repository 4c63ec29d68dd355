"""A subscription that was left for a while, to be gone on with by ``accept_gap``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from catalog.errcodes import ObjectNotInPrerequisiteState
from catalog.pg_lsn import LSN
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import Setter, SubRelState, SubscriptionRel
from subscriber.commands.accept_gap import accept_gap
from subscriber.commands.context import CommandContext
from subscriber.commands.create_drop import create_subscription
from tests.subscriber.twins import Around, PublishedTable, around, statement
from workers.lake.memory.destination import MemoryDestination
from workers.lake.memory.lake import MemoryLake
from workers.lake.table import LakeColumn, LakeIdent, Stamp
from workers.publisher.same_server import judge_server
from workers.tables.position import check_position

COLUMNS = (LakeColumn("id", pa.int32()), LakeColumn("v", pa.int32()))
STATES = {"ready": SubRelState.READY, "done": SubRelState.SYNCDONE, "new": SubRelState.INIT}


@dataclass(slots=True)
class Left:
    """A subscription as it was left at 500: tables ``ready`` (400), ``done`` (s at 450) and
    ``new`` (i); confirmed 480, the publisher at 1000 on timeline 1."""

    world: Around
    lake: MemoryLake
    context: CommandContext

    @property
    def sub(self) -> Subscription:
        found = self.world.store.subscription_by_name("mysub")
        assert found is not None
        return found

    def rel(self, name: str) -> SubscriptionRel:
        return next(r for r in self.world.store.rels(self.sub.oid) if r.relname == name)

    def stamp(self, name: str) -> Stamp:
        table = MemoryDestination(self.lake).table(LakeIdent("public", name))
        assert table is not None
        assert table.stamp is not None
        return table.stamp

    def origin(self) -> int:
        found = self.world.store.origin_by_name(origin_name(self.sub.oid))
        assert found is not None
        return found.remote_lsn

    def server(self, **changes: Any) -> None:
        self.world.publisher.identity = replace(self.world.publisher.identity, **changes)

    def accept(self) -> list[str]:
        """What was said; afterwards everything fits, and a worker would start."""
        self.world.notices.clear()
        accept_gap("mysub", self.context)
        assert self.world.events[-2:] == ["hold", "let go"]
        rels = [rel for rel in self.world.store.rels(self.sub.oid) if rel.relname != "new"]
        for rel in rels:
            lake = MemoryDestination(self.lake).table(LakeIdent("public", rel.relname))
            assert lake is not None
            check_position(rel, lake, "mysub")
        highest = LSN(max([self.origin(), self.sub.max_flush_lsn, *(r.lake_lsn for r in rels)]))
        identity: Any = self.world.publisher.identity
        assert judge_server(self.sub, highest, identity, ()) is None
        with pytest.raises(ObjectNotInPrerequisiteState, match="there is no gap to accept"):
            accept_gap("mysub", self.context)
        return [f"{line.primary} {line.detail or ''}" for line in self.world.notices]


@contextmanager
def left_behind(tmp_path: Path) -> Iterator[Left]:
    world, lake = around(tmp_path), MemoryLake()
    world.publisher.tables = {name: PublishedTable() for name in STATES}
    world.publisher.identity = replace(world.publisher.identity, xlogpos=LSN(100))
    sub = create_subscription(statement(), world.context)
    dest = MemoryDestination(lake)
    for rel in world.store.rels(sub.oid):
        if rel.relname == "new":
            continue
        at = LSN(400 if rel.relname == "ready" else 450)
        world.store.set_rel_state(
            sub.oid, rel.srrelid, SubRelState.DATASYNC, None, Setter.TABLESYNC
        )
        world.store.set_rel_state(sub.oid, rel.srrelid, SubRelState.SYNCDONE, at, Setter.TABLESYNC)
        if rel.relname == "ready":
            world.store.set_rel_state(sub.oid, rel.srrelid, SubRelState.READY, at, Setter.APPLY)
        world.store.update_rel(
            sub.oid, rel.srrelid, epoch="first", lake_lsn=at, floor=LSN(100), copied=True
        )
        dest.create_table(
            LakeIdent("public", rel.relname),
            COLUMNS,
            owner=sub.subuuid,
            relid=rel.srrelid,
            stamp=Stamp(origin_name(sub.oid), at, "first", LSN(100)),
        )
    world.store.update_subscription(sub.oid, max_flush_lsn=LSN(480))
    world.store.origin_advance(origin_name(sub.oid), LSN(500), "")
    world.publisher.slots["mysub"].confirmed = LSN(470)
    world.publisher.identity = replace(world.publisher.identity, xlogpos=LSN(1000))
    context = replace(
        world.context,
        lake=lambda: MemoryDestination(lake),
        lake_tables=lambda idents: [MemoryDestination(lake).table(ident) for ident in idents],
    )
    yield Left(world, lake, context)
    world.store.close()
    assert world.publisher.connections == 0
