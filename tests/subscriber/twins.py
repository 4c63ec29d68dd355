"""Twins of the publisher, the lake and the launcher for the commands' tests."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from catalog.pg_subscription import Subscription
from catalog.store_sqlite import CatalogStore
from config.load import parse
from config.subscription import CreateSubscriptionStmt
from subscriber.commands.context import CommandContext
from subscriber.messages import Notice
from workers.lake.destination import Destination
from workers.lake.new_layout import PLAIN, NewLayout
from workers.lake.segment import Generated, Segment
from workers.lake.table import BRANCH_PREFIX, LakeColumn, LakeIdent, LakeTable, Stamp
from workers.lake.writer_choice import WriterChoice, choose
from workers.publisher.interfaces import Row, SystemIdentity

POINT = LSN.parse("0/19BD9E8")

FIRST_OID = 20000
"""The oid of the first table that a publisher's twin is asked for."""

ENUM, ENUMS, COMPOSITE = "16400", "16401", "16410"
"""The oids of enum stage, of its array, and of composite type point3."""


@dataclass(frozen=True, slots=True)
class Identity(SystemIdentity):
    systemid: str = "7329764006882527550"
    timeline: int = 1
    xlogpos: LSN = POINT
    dbname: str = "shop"
    datoid: int = 16385


@dataclass(slots=True)
class PublishedTable:
    """A table with int4 columns; the first ``key`` of them are its replica identity.

    ``arrays`` names the columns of type int4[], ``types`` has the oids of other columns.
    """

    columns: Sequence[str] = ("id", "v")
    relkind: str = "r"
    key: int = 1
    letters: str = "tttt"
    row_filter: str | None = None
    readable: bool = True
    arrays: Sequence[str] = ()
    row_security: bool = False
    types: Mapping[str, str] = field(default_factory=dict)
    identity: str = "d"


@dataclass(slots=True)
class Slot:
    active: bool = False
    plugin: str = "pgoutput"
    confirmed: LSN = POINT
    database: str = "shop"
    lost: bool = False
    temporary: bool = False
    two_phase: bool = False

    def fits(self, pattern: str, name: str) -> bool:
        """Whether it is one of those that stay, for pgoutput in the connection's database."""
        ours = (self.plugin, self.database, self.temporary) == ("pgoutput", "shop", False)
        return ours and re.search(pattern, name) is not None


@dataclass(slots=True)
class PublisherTwin:
    """A publisher with publication ``pub`` of every table in database ``shop``.

    ``only`` names the tables of publications that have not all of them. ``fail`` maps a call's name
    to the error it raises; ``connections`` counts the open ones. ``oids`` are the oids given by
    name so far: a dropped table and a new one have two.
    """

    tables: dict[str, PublishedTable] = field(default_factory=lambda: {"a": PublishedTable()})
    publications: tuple[str, ...] = ("pub",)
    only: dict[str, tuple[str, ...]] = field(default_factory=dict)
    slots: dict[str, Slot] = field(default_factory=dict)
    fail: dict[str, BaseException] = field(default_factory=dict)
    other_origins: list[Row] = field(default_factory=list)
    identity: Identity = field(default_factory=Identity)
    histories: dict[int, str] = field(default_factory=dict)
    standby: bool = False
    timeouts: list[float | None] = field(default_factory=list)
    server_version: int = 18
    connections: int = 0
    altered: list[str] = field(default_factory=list)
    oids: dict[str, int] = field(default_factory=dict)
    on_create_slot: Callable[[], None] = lambda: None

    def connect(self, sub: Subscription) -> PublisherTwin:
        self._check("connect")
        self.connections += 1
        return self

    def close(self) -> None:
        self.connections -= 1

    def identify_system(self) -> Identity:
        self._check("identify_system")
        return self.identity

    def timeline_history(self, tli: int) -> str:
        self._check("timeline_history")
        return self.histories[tli]

    def create_slot(
        self,
        name: str,
        *,
        temporary: bool,
        snapshot: str,
        failover: bool = False,
        two_phase: bool = False,
        timeout: float | None = None,
    ) -> LSN:
        assert (temporary, snapshot) == (False, "nothing")
        self.timeouts.append(timeout)
        self.on_create_slot()
        self._check("create_slot")
        self.slots[name] = Slot(confirmed=self.identity.xlogpos, two_phase=two_phase)
        return self.identity.xlogpos

    def drop_slot(self, name: str, *, wait: bool = True, missing_ok: bool = False) -> None:
        self._check("drop_slot")
        if self.slots[name].active:
            raise ReplicationError(f'replication slot "{name}" is active', sqlstate="55006")
        del self.slots[name]

    def _check(self, call: str) -> None:
        if call in self.fail:
            raise self.fail[call]

    def exec(self, sql: str) -> list[Row]:
        """Answer the queries of ``publication.sql`` by what they are about."""
        self._check("exec")
        if sql.startswith("ALTER_REPLICATION_SLOT"):
            self._check("alter_slot")
            self.altered.append(sql)
            return []
        if "has_schema_privilege" in sql:
            return [(oid,) for oid, name in self._oids().items() if not self.tables[name].readable]
        if "row_security_active" in sql:
            hidden = [name for name, table in self.tables.items() if table.row_security]
            return [("public", name, "reader", "on") for name in hidden if f"'{name}'" in sql]
        if "pg_is_in_recovery" in sql:
            return [("t" if self.standby else "f",)]
        if "slot_name ~" in sql:
            (pattern,) = re.findall("slot_name ~ '(.*?)'", sql)
            return [(name,) for name, slot in self.slots.items() if slot.fits(pattern, name)]
        if "pg_replication_slots" in sql:
            return self._slot(re.findall(r"slot_name = '(.*?)'", sql)[0])
        if "pg_subscription_rel" in sql:
            return self.other_origins
        if sql.startswith("SELECT t.pubname"):
            return [(name,) for name in self.publications if f"'{name}'" in sql]
        named = [name for name in self.publications if f"'{name}'" in sql]
        if not named and "pg_publication" in sql:
            return []
        if "VARIADIC" in sql:
            tables = sorted({name for publication in named for name in self._of(publication)})
            return [("public", name, "1 2") for name in tables]
        if "pubinsert" in sql:
            return [
                ("public", name, *table.letters, "f", table.row_filter, "1/1", "0", "1")
                for publication in named
                for name, table in self._of(publication).items()
            ]
        return self._table(sql)

    def _of(self, publication: str) -> dict[str, PublishedTable]:
        only = self.only.get(publication, tuple(self.tables))
        return {name: table for name, table in self.tables.items() if name in only}

    def oid(self, name: str) -> int:
        """The oid of a table; a name keeps its oid, until ``rename``."""
        return self.oids.setdefault(name, max(self.oids.values(), default=FIRST_OID - 1) + 1)

    def rename(self, old: str, new: str) -> None:
        """The table keeps its oid; another table that gets the old name later has another one."""
        self.tables = {new if name == old else name: each for name, each in self.tables.items()}
        self.oids[new] = self.oid(old)
        del self.oids[old]

    def _oids(self) -> dict[str, str]:
        return {str(self.oid(name)): name for name in self.tables}

    def _table(self, sql: str) -> list[Row]:
        oids = self._oids()
        if "INNER JOIN" in sql:
            name = re.findall(r"relname = '(.*?)'", sql)[0]
            return [
                (oid, self.tables[name].identity, self.tables[name].relkind, "0")
                for oid, other in oids.items()
                if other == name
            ]
        if "c.oid IN (" in sql and "relkind IN" in sql:
            asked = re.findall(r"c\.oid IN \((.*?)\)", sql)[0].split(", ")
            return [(oid, "public", name) for oid, name in oids.items() if oid in asked]
        if "format_type(a.atttypid" in sql or "f.relfilenode" in sql:
            self._check("format_type")
            oid = re.findall(r"attrelid = (\d+)", sql)[0]
            return self._columns(oid, self.tables[oids[oid]], shape="f.relfilenode" in sql)
        if "c.relreplident = 'f'" in sql:
            return []  # no primary key, and no partition
        if "pg_attribute" in sql:
            table = self.tables[oids[re.findall(r"attrelid = (\d+)", sql)[0]]]
            return [
                (
                    str(n),
                    name,
                    "1007" if name in table.arrays else table.types.get(name, "23"),
                    "-1",
                    "f",
                    "t" if n <= table.key else "f",
                    "f",
                    str(table.key),
                )
                for n, name in enumerate(table.columns, 1)
            ]
        if "pg_type" in sql:
            return [
                ("23", "pg_catalog", "int4", "b", "0", "-1", "0", ","),
                ("1007", "pg_catalog", "_int4", "b", "0", "-1", "23", ","),
                ("2205", "pg_catalog", "regclass", "b", "0", "-1", "0", ","),
                (ENUM, "public", "stage", "e", "0", "-1", "0", ","),
                (ENUMS, "public", "_stage", "b", "0", "-1", ENUM, ","),
                (COMPOSITE, "public", "point3", "c", "0", "-1", "0", ","),
            ]
        if "pg_get_expr" in sql:
            return [(self.tables[oids[re.findall(r"relid = (\d+)", sql)[0]]].row_filter,)]
        return [(None,)]

    def _columns(self, oid: str, table: PublishedTable, *, shape: bool) -> list[Row]:
        """The columns for ``fetch_shape`` or for ``fetch_declared_columns``."""
        return [
            (
                str(n),
                name,
                table.types.get(name, "23"),
                "-1",
                "f",
                "f",
                None,
                f"{oid}:7",
                "",
                "1",
                None,
            )
            if shape
            else (str(n), name, "integer", "f", None, "")
            for n, name in enumerate(table.columns, 1)
        ]

    def _slot(self, name: str) -> list[Row]:
        slot = self.slots.get(name)
        if slot is None:
            return []
        active = "t" if slot.active else "f"
        told = (slot.plugin, "logical", slot.database, active, None, str(slot.confirmed), "shop")
        return [(*told, *(("lost", None, None) if slot.lost else ("reserved", None, "false")))]


@dataclass(slots=True)
class LakeTwin:
    """The lake's tables, as far as commands touch them."""

    tables: dict[LakeIdent, LakeTable] = field(default_factory=dict)
    fail: dict[str, BaseException] = field(default_factory=dict)
    fenced: list[str] = field(default_factory=list)
    durable: dict[str, Stamp | None] = field(default_factory=dict)
    unbranched: list[tuple[str, str]] = field(default_factory=list)
    discarded: list[tuple[str, str]] = field(default_factory=list)
    on_fence: Callable[[LakeTable], LakeTable] = lambda table: table
    changes_columns: bool = True
    only_spark: str | None = None

    def add(
        self,
        name: str,
        columns: Sequence[str] = ("id", "v"),
        owner: str | None = None,
        stamp: Stamp | None = None,
    ) -> None:
        ident = LakeIdent("public", name)
        made = tuple(LakeColumn(column, pa.int32()) for column in columns)
        self.tables[ident] = LakeTable(ident, made, owner, 1, stamp)

    def fence(self, ident: LakeIdent) -> LakeTable:
        self.fenced.append(ident.table)
        self.tables[ident] = self.on_fence(self.tables[ident])
        return self.tables[ident]

    def make_durable(self, idents: Collection[LakeIdent]) -> None:
        for ident in idents:
            self.durable[ident.table] = self.tables[ident].stamp

    def table(self, ident: LakeIdent) -> LakeTable | None:
        return self.tables.get(ident)

    def create_table(
        self,
        ident: LakeIdent,
        columns: Sequence[LakeColumn],
        *,
        owner: str,
        relid: int,
        stamp: Stamp,
        layout: NewLayout = PLAIN,
    ) -> LakeTable:
        del layout
        for call in ("create_table", f"create_table {ident.table}"):
            if call in self.fail:
                raise self.fail[call]
        unsourced = None if stamp.source else stamp
        self.tables[ident] = LakeTable(ident, tuple(columns), owner, 1, unsourced)
        return self.tables[ident]

    def generated_columns(
        self, ident: LakeIdent, columns: Sequence[LakeColumn], generated: Generated
    ) -> tuple[LakeColumn, ...]:
        return tuple(LakeColumn(name, pa.int64()) for name, _ in generated)

    def adopt_table(
        self, ident: LakeIdent, *, owner: str, stamp: Stamp, former_owners: Collection[str] = ()
    ) -> LakeTable:
        old = self.tables[ident]
        self.tables[ident] = LakeTable(ident, old.columns, owner, 2, stamp)
        return self.tables[ident]

    def drop_table(self, ident: LakeIdent) -> None:
        del self.tables[ident]

    def choose_writer(self, ident: LakeIdent, asked: str) -> WriterChoice:
        return choose(asked, self.only_spark, ident)

    def create_branch(self, ident: LakeIdent, branch: str) -> None:
        """Nothing is ever on one."""

    def drop_branches(self, ident: LakeIdent, *, prefix: str = BRANCH_PREFIX) -> None:
        if "drop_branches" in self.fail:
            raise self.fail["drop_branches"]
        self.unbranched.append((ident.table, prefix))

    def discard_copy(self, ident: LakeIdent, copy_id: str) -> None:
        self.discarded.append((ident.table, copy_id))

    def write(
        self, ident: LakeIdent, branch: str, segments: Sequence[Segment], stamp: Stamp
    ) -> None:
        assert not segments

    def publish(self, ident: LakeIdent, branch: str, stamp: Stamp) -> None:
        old = self.tables[ident]
        sources = {**old.sources, stamp.source: stamp}
        self.tables[ident] = dataclasses.replace(old, sources=sources)


@dataclass(frozen=True, slots=True)
class WorkerTwin:
    subid: int
    pid: int | None = 77


@dataclass(slots=True)
class Around:
    """Everything around the commands, to look at and to break.

    ``events`` are what the launcher was asked to do with workers, in order.
    """

    store: CatalogStore
    publisher: PublisherTwin
    lake: LakeTwin
    notices: list[Notice]
    wakes: list[None]
    events: list[str]
    workers: list[Sequence[WorkerTwin]]  # what the launcher answers, one after the other
    context: CommandContext

    def said(self) -> list[str]:
        """The notices' first lines."""
        return [f"{notice.severity}: {notice.primary}" for notice in self.notices]


def nothing_is_left(world: Around) -> None:
    """Neither in the catalog nor on the publisher nor in the lake nor in a file."""
    assert world.store.subscriptions() == []
    assert world.store.origins() == []
    assert world.publisher.slots == {}
    assert world.lake.tables == {}
    assert not list(world.context.data_dir.rglob("passfile/*"))


def around(data_dir: Path) -> Around:
    """A site of twins; its catalog is in memory."""
    store = CatalogStore.open(":memory:")
    publisher, lake = PublisherTwin(), LakeTwin()
    notices: list[Notice] = []
    wakes: list[None] = []
    events: list[str] = []
    workers: list[Sequence[WorkerTwin]] = []

    @contextmanager
    def workers_stopped(subid: int) -> Iterator[None]:
        events.append("hold")
        try:
            yield
        finally:
            events.append("let go")

    context = CommandContext(
        data_dir=data_dir,
        store=store,
        connect=publisher.connect,
        lake=lambda: cast("Destination", lake),
        lake_tables=lambda idents: [lake.table(ident) for ident in idents],
        probe_lake=lambda: None,
        expect_copy=lambda _is_large: None,
        workers=lambda: workers.pop(0) if workers else (),
        wake_launcher=lambda: wakes.append(None),
        wait_until_workers_reload=lambda subid: events.append("take effect"),
        stop_sync_worker=lambda subid, relid: events.append(f"stop {relid}"),
        workers_stopped=workers_stopped,
        notify=notices.append,
    )
    return Around(store, publisher, lake, notices, wakes, events, workers, context)


def statement(name: str = "mysub", **keys: Any) -> CreateSubscriptionStmt:
    """A statement as the configuration file would give it; ``with_`` stands for ``with``."""
    import json

    body: dict[str, Any] = {"connection": "host=db dbname=shop", "publication": ["pub"]}
    body |= {key.rstrip("_"): value for key, value in keys.items()}
    return parse(json.dumps({"subscriptions": {name: body}}), "f.yaml").subscriptions[0]
