"""Plays every kind of DDL on one subscription, and compares with the publisher.

Each kind has a table of its own, so all take about as long as the slowest kind. A reader
looks at the tables that are copied again all the time: rows that nobody deletes are never away.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

from catalog.pg_subscription_rel import SubRelState
from catalog.store_sqlite import CatalogStore
from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.fix_publisher import new_database
from tests.harness import Pgsub
from tests.integration.ddl_kinds import ALWAYS, BASE, KINDS, LOOKING, NEVER, Kind
from tests.twin import native_rows
from tests.waiting import wait_until

PATIENCE = 400.0
READ_PAUSE = 0.5
ROWS: Final = 30
"""A table's rows at first; those from ``STAY`` on are never deleted."""
STAY: Final = 10

_COLUMNS = """
SELECT a.attname, coalesce(b.typname, t.typname),
       coalesce(nullif(t.typtypmod, -1), a.atttypmod)
  FROM pg_attribute a
  JOIN pg_type t ON t.oid = a.atttypid
  LEFT JOIN pg_type b ON b.oid = t.typbasetype AND t.typtype = 'd'
 WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped
   AND (a.attgenerated = '' OR current_setting('server_version_num')::int >= 180000)
"""
_LAKE_TYPES: Final = {
    "bool": "bool",
    "int2": "int32",
    "int4": "int32",
    "int8": "int64",
    "float4": "float",
    "float8": "double",
    "date": "date32[day]",
    "timestamp": "timestamp[us]",
    "timestamptz": "timestamp[us, tz=UTC]",
}


class Grid:
    """A publisher's database with a table for each kind, and a subscription.

    ``is_done`` is False while the DDL has not happened: tables are compared under the old names.
    ``copied_early`` has what was copied before.
    """

    def __init__(
        self, pgsub: Pgsub, server: EmbeddedPublisher, name: str, *, captured: bool
    ) -> None:
        self.pgsub = pgsub
        self.captured = captured
        self.schema = f"ddl_{name}_{server.version}_{'told' if captured else 'seen'}"
        self.pub = new_database(server, self.schema, self.schema)
        self.name = self.pub.name
        self.kinds = {
            name: kind
            for name, kind in KINDS.items()
            if kind.since <= server.version and (captured or not kind.told)
        }
        self.is_done = True
        self.copied_early: dict[str, list[str]] = {}
        self.gaps: list[str] = []
        self.left: dict[str, str] = {}
        self.log_start = pgsub.log_file.stat().st_size

    def text(self, name: str, template: str) -> str:
        """A statement or a name of a kind."""
        return template.replace("{t}", name).replace("{s}", self.schema)

    def table(self, name: str) -> str:
        """A kind's table before its DDL."""
        return self.text(name, self.kinds[name].schema + ".{t}")

    def make(self, **options: Any) -> None:
        """Tables with rows, a publication of all tables, and the subscription, with triggers.

        ``options`` are the subscription's.
        """
        self.pub.run(*(f"CREATE SCHEMA {self.schema}{each}" for each in ("_far", "_was")))
        for name, kind in self.kinds.items():
            columns = {**BASE, **kind.columns}
            listed = ", ".join(f"{c} {type_}" for c, (type_, _) in columns.items())
            self.pub.run(
                *(self.text(name, each) for each in kind.first),
                self.text(name, f"CREATE TABLE {self.table(name)} ({listed}) {kind.suffix}"),
                *(self.text(name, each) for each in kind.made),
                self.insert(name, 0, ROWS, then=False),
            )
        words = ["publish_via_partition_root = true"]
        if self.pub.server.version >= 18:
            words.append("publish_generated_columns = stored")
        self.pub.run(f"CREATE PUBLICATION pub FOR ALL TABLES WITH ({', '.join(words)})")
        tables = {
            self.table(name): dict(kind.options)
            for name, kind in self.kinds.items()
            if kind.options
        }
        options = {"refresh": "auto", "enabled": False, "tables": tables, **options}
        self.pgsub.create(self.name, self.pub.dsn, ["pub"], **options)
        if self.captured:
            self.pgsub.command("ddl-capture", "install", self.name, "--execute")

    def enable(self) -> None:
        """Start the subscription's worker."""
        self.pgsub.command("enable", self.name)

    # -- what is played --------------------------------------------------------------------------

    def ddl(self, name: str) -> list[str]:
        """A kind's statements."""
        return [self.text(name, each) for each in self.kinds[name].ddl]

    def insert(self, name: str, first: int, rows: int, *, then: bool) -> str:
        """Rows with ids from ``first`` + 1 on."""
        kind = self.kinds[name]
        columns = {c: value for c, (_, value) in {**BASE, **kind.columns}.items()}
        columns |= kind.then if then else {}
        columns = {c: value for c, value in columns.items() if value}
        table = self.text(name, kind.now) if then else self.table(name)
        return self.text(
            name,
            f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(columns.values())}"
            f" FROM generate_series({first + 1}, {first + rows}) i",
        )

    def changes(self, name: str, first: int) -> list[str]:
        """Behind a kind's DDL rows come, and old and new ones change and go."""
        kind = self.kinds[name]
        if kind.leaves:
            return []
        table, key = self.text(name, kind.now), kind.key_then
        found = [self.insert(name, first, 10, then=True)]
        if kind.touch_then is not None:
            found += [
                f"UPDATE {table} SET {kind.touch_then} WHERE {key} % 3 = 0",
                f"UPDATE {table} SET {key} = -{key} WHERE {key} = {first + 2}",
                f"DELETE FROM {table} WHERE {key} IN ({first + 4}, {first // 1000})",
            ]
        return found

    # -- what is compared ------------------------------------------------------------------------

    def pairs(self, name: str) -> list[str]:
        """The tables of a kind that the lake has."""
        kind = self.kinds[name]
        if not self.is_done:
            return [self.table(name)]
        return [] if kind.leaves else [self.text(name, each) for each in (kind.now, *kind.also)]

    def difference(self, name: str) -> str:
        """What the lake has otherwise than the publisher, of a kind; nothing if they are equal."""
        kind = self.kinds[name]
        if kind.leaves and self.is_done:
            return "subscribed" if self.table(name) in self.subscribed() else ""
        for table in self.pairs(name):
            said = self._difference(table, kind)
            if said:
                return f"{table}: {said}"
        return ""

    def subscribed(self) -> set[str]:
        """The tables of the subscription."""
        return set(self.states())

    def states(self) -> dict[str, SubRelState]:
        """The tables of the subscription, with their states."""
        with closing(CatalogStore.open(self.pgsub.data_dir)) as store:
            sub = store.subscription_by_name(self.name)
            assert sub is not None
            rels = store.rels(sub.oid)
            return {f"{rel.nspname}.{rel.relname}": rel.srsubstate for rel in rels}

    def _difference(self, table: str, kind: Kind) -> str:
        schema, _, relname = table.rpartition(".")
        types = {
            column: _lake_type(typname, typmod)
            for column, typname, typmod in self.pub.execute(_COLUMNS, (table,))
        }
        try:
            found = self.pgsub.arrow(schema or self.schema, relname)
        except Exception as error:  # another process writes the table and its files
            return repr(error)
        ours = {
            column: str(found.schema.field(column).type).removeprefix("large_")
            for column in found.column_names
        }
        more = ours.keys() - types.keys() - set(kind.kept if self.is_done else ())
        if more or not types.keys() <= ours.keys():
            return f"columns {sorted(ours)}, published {sorted(types)}"
        types |= kind.wider if self.is_done else {}
        others = {c: (ours[c], types[c]) for c in types if ours[c] != types[c]}
        if others:
            return f"types {others}"
        lake = self.pgsub.rows(schema or self.schema, relname, list(types))
        published = native_rows(self.pub, table, list(types))
        if lake == published:
            return ""
        return (
            f"{len(lake)} rows, published {len(published)}:"
            f" {[row for row in lake if row not in published][:3]} not"
            f" {[row for row in published if row not in lake][:3]}"
        )

    def end(self) -> None:
        """Wait until all are equal, and again behind further changes; ``left`` is what is not."""
        self.settle()
        for name in self.kinds:
            if name not in self.left:
                self.pub.run(*self.changes(name, 7000))
        self.settle()

    def settle(self) -> None:
        """Wait until all are equal; ``left`` gets what is not."""
        self.left |= self._settle()

    def _settle(self) -> dict[str, str]:
        left = {name: "" for name in self.kinds if name not in self.left}

        def equal() -> bool:
            for name in list(left):
                left[name] = self.difference(name)
                if not left[name]:
                    del left[name]
            return not left

        try:
            wait_until(equal, PATIENCE, pause=1.0)
        except AssertionError:
            return left
        return {}

    def copied(self) -> dict[str, list[str]]:
        """Kind → what the view of changes, and the log of refreshes, say about its copies."""
        said: dict[str, list[str]] = {}
        log = self.log()
        rows = [row for row in self.pgsub.status("schema_changes") if row["subname"] == self.name]
        for name in self.kinds:
            tables = {each if "." in each else f"{self.schema}.{each}" for each in self.pairs(name)}
            found = [row for row in rows if row["relation"] in tables and row["copy_state"]]
            said[name] = [f"{row['copy_state']}: {row['description']}" for row in found]
            said[name] += [each for each in tables if f'table "{each}" is another one' in log]
        return said

    def is_copied(self, name: str) -> bool | None:
        """Has the kind's table to be copied again? None: it may."""
        copied = self.kinds[name].copied
        if copied == LOOKING:
            return not self.captured
        return {ALWAYS: True, NEVER: False}.get(copied)

    def log(self) -> str:
        """What was logged since the beginning."""
        with self.pgsub.log_file.open("rb") as file:
            file.seek(self.log_start)
            return file.read().decode(errors="replace")

    # -- readers ---------------------------------------------------------------------------------

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Somebody reads the tables that are copied again; ``gaps`` has what was missing."""
        ended = threading.Event()
        tables = [name for name in self.kinds if self.kinds[name].copied == ALWAYS]

        def read() -> None:
            while not ended.wait(READ_PAUSE):
                for name in tables:
                    self._read(name)

        reader = threading.Thread(target=read, name="reader")
        reader.start()
        try:
            yield
        finally:
            ended.set()
            reader.join()

    def _read(self, name: str) -> None:
        try:
            table = self.pgsub.iceberg_table(self.schema, name)
            ids = set(table.scan(selected_fields=("id",)).to_arrow().column("id").to_pylist())
        except Exception as error:
            self.gaps.append(f"{name}: {error!r}")
            return
        missing = set(range(STAY, ROWS + 1)) - ids
        if missing:
            self.gaps.append(f"{name}: {len(ids)} rows, without {sorted(missing)[:3]}")

    def close(self) -> None:
        """Drop the subscription and the database."""
        self.pgsub.drop(self.name)
        self.pub.drop()


def _lake_type(typname: str, typmod: int) -> str:
    """The type of a lake column, as Arrow names it, for a type of the publisher."""
    if typname == "numeric" and typmod > 0:
        return f"decimal128({(typmod - 4) >> 16}, {(typmod - 4) & 0x7FF})"
    return _LAKE_TYPES.get(typname, "string")
