"""A flow: a scenario of PostgreSQL's suite run once, its own subscriber beside ours.

A module's fixture runs the whole flow and records rows at checkpoints; the numbered tests then
look at what was recorded. Names: on the publisher and on the twin everything is in a schema with
the flow's name, so the lake's tables are ``lake.<flow>.<table>``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from catalog.store_sqlite import CatalogStore
from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.fix_publisher import Database, new_database
from tests.harness import Pgsub
from tests.twin import NativeTwin, column_names, in_order, native_rows
from tests.waiting import wait_until

Rows = list[tuple[Any, ...]]

Letters = dict[tuple[str, str, str], str]
"""State letter by subscription, schema and table."""

_NATIVE_LETTERS = """
SELECT s.subname, n.nspname, c.relname, sr.srsubstate
  FROM pg_subscription_rel sr
  JOIN pg_subscription s ON s.oid = sr.srsubid
  JOIN pg_class c ON c.oid = sr.srrelid
  JOIN pg_namespace n ON n.oid = c.relnamespace
"""


class Flow:
    """Two subscribers of one publisher, and what they held at each checkpoint.

    ``said``: what the last command on a subscription printed beside its result, ``native_said``
    the twin's. ``twin_only``: tables that the twin alone is subscribed to.
    """

    def __init__(
        self,
        pgsub: Pgsub,
        twin: NativeTwin,
        server: EmbeddedPublisher,
        name: str,
        encoding: str | None = None,
    ) -> None:
        self.pgsub = pgsub
        self.twin = twin
        self.name = name
        self.pub: Database = new_database(server, name, schema=name, encoding=encoding)
        self.sub: Database = new_database(twin.server, name, schema=name)
        self.subscriptions: list[str] = []
        self.said: dict[str, str] = {}
        self.native_said: dict[str, list[str]] = {}
        self.recorded: dict[tuple[str, str], tuple[Rows, Rows]] = {}
        self.recorded_letters: dict[str, tuple[Letters, Letters]] = {}
        self.twin_only: set[str] = set()
        self.facts: dict[str, Any] = {}

    def both(self, *statements: str) -> None:
        """Run statements on the publisher and on the twin."""
        self.pub.run(*statements)
        self.sub.run(*statements)

    def subscribe(
        self,
        base: str,
        publications: Sequence[str],
        *,
        tables: Mapping[str, Mapping[str, Any]] | None = None,
        sync_slot: str | None = None,
        refresh: str | None = None,
        **options: Any,
    ) -> str:
        """Create the subscription on both sides; ours is named, the twin's has ``_native``."""
        name = f"{self.name}_{base}"
        native = {word: str(value).lower() for word, value in options.items()}
        if "slot_name" in native:
            native["slot_name"] = f"{options['slot_name']}_native"
        self.native_said[name] = self.twin.subscribe(
            self.sub, self.pub, f"{name}_native", publications, **native
        )
        keyed = {".".join(self.qualified(table)): spec for table, spec in (tables or {}).items()}
        ours: dict[str, Any] = {"sync_slot": sync_slot, "refresh": refresh, **options}
        done = self.pgsub.create(name, self.pub.dsn, publications, tables=keyed, **ours)
        self.said[name] = done.stderr
        self.subscriptions.append(name)
        return name

    def alter(self, name: str, words: str) -> None:
        """``ALTER SUBSCRIPTION`` on both sides; a word's quotes are those of SQL."""
        self.native_said[name] = self.sub.said(f'ALTER SUBSCRIPTION "{name}_native" {words}')
        self.said[name] = self.pgsub.command("alter", name, *words.split()).stderr

    def warnings(self, name: str) -> tuple[list[str], list[str]]:
        """What the last command on a subscription warned of: ours, and the twin's."""
        native = [line.replace(f'"{name}_native"', f'"{name}"') for line in self.native_said[name]]
        both = self.said[name].splitlines(), native
        ours, twins = ([line for line in each if line.startswith("WARNING:")] for each in both)
        return ours, twins

    def drop(self, name: str) -> None:
        """Drop one of the flow's subscriptions on both sides."""
        self.subscriptions.remove(name)
        self.pgsub.drop(name)
        self.sub.execute(f'DROP SUBSCRIPTION "{name}_native"')

    def catch_up(self, *, ours: bool = True) -> None:
        """Until both sides hold all that the publisher has committed by now."""
        for name in self.subscriptions if ours else ():
            self.pgsub.wait(name)
        self.twin.wait_synced(self.sub)
        for name in self.subscriptions:
            self.twin.wait_caught_up(self.pub, f"{name}_native")
        self.twin.wait_ready(self.sub)

    def checkpoint(
        self, label: str, *tables: str, columns: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        """Catch up and record on both sides."""
        self.catch_up()
        self.record(label, *tables, columns=columns)

    def record(
        self, label: str, *tables: str, columns: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        """The tables' rows and all state letters as they are, on both sides."""
        self.recorded_letters[label] = self.letters()
        for table in tables:
            wanted = (columns or {}).get(table) or column_names(self.sub, table)
            self.recorded[label, table] = (
                native_rows(self.sub, table, wanted),
                self.pgsub.rows(*self.qualified(table), wanted),
            )

    def qualified(self, table: str) -> tuple[str, str]:
        """Schema and name; the schema is the flow's where none is said."""
        schema, _, name = table.rpartition(".")
        return schema or self.name, name

    def same(self, label: str, table: str) -> Rows:
        """The rows of a table at a checkpoint, which are the twin's too, as all letters were."""
        native_letters, our_letters = self.recorded_letters[label]
        assert our_letters == native_letters
        native, ours = self.recorded[label, table]
        assert in_order(ours) == native
        return ours

    def lake(self, statement: str) -> list[dict[str, Any]]:
        """Spark SQL; ``{t}`` stands for the flow's lake schema."""
        return self.pgsub.sql(statement.replace("{t}", f"lake.{self.name}"))

    def lake_tables(self) -> set[str]:
        """The tables of the flow's lake schema."""
        return {row["tableName"] for row in self.lake("SHOW TABLES IN {t}")}

    def letters(self) -> tuple[Letters, Letters]:
        """The twin's state letters and ours, of what the flow is subscribed to on both sides."""
        native = {
            (name.removesuffix("_native"), schema, table): letter
            for name, schema, table, letter in self.sub.execute(_NATIVE_LETTERS)
            if name.removesuffix("_native") in self.subscriptions and table not in self.twin_only
        }
        with closing(CatalogStore.open(self.pgsub.data_dir)) as store:
            ours = {
                (sub.subname, rel.nspname, rel.relname): str(rel.srsubstate)
                for sub in store.subscriptions()
                if sub.subname in self.subscriptions
                for rel in store.rels(sub.oid)
            }
        return native, ours

    def same_letters(self, name: str) -> dict[str, str]:
        """State letter of each table of a subscription, which is the twin's too.

        For when neither side is on its way to another: all is synchronised, or fails.
        """
        native, ours = self.letters()
        assert ours == native
        return {table: letter for (sub, _, table), letter in ours.items() if sub == name}

    def states(self, name: str) -> dict[str, str]:
        """State letter of each table of a subscription, as ``status`` shows it."""
        found = {row["subname"]: row["oid"] for row in self.pgsub.status("pg_subscription")}
        return {
            row["relname"]: row["srsubstate"]
            for row in self.pgsub.status("pg_subscription_rel")
            if row["srsubid"] == found[name]
        }

    def wait_failing(self, name: str, counter: str = "apply_error_count") -> None:
        """Until the apply worker of each side, or what ``counter`` counts, has failed twice."""
        errors = f"SELECT {counter} FROM pg_stat_subscription_stats WHERE subname = %s"

        def ours() -> bool:
            stats = self.pgsub.status("pg_stat_subscription_stats")
            return any(row["subname"] == name and row[counter] > 1 for row in stats)

        wait_until(ours, 120, self.pgsub.log_tail)
        native = (f"{name}_native",)
        wait_until(lambda: self.sub.value(errors, native) > 1, 60, self.twin.log_tail)

    def close(self) -> None:
        """Drop what the flow made on the three servers; the lake's tables may stay."""
        for name in list(self.subscriptions):
            self.drop(name)
        self.sub.drop()
        self.pub.drop()


def n_min_max(rows: Rows) -> tuple[int, Any, Any]:
    """Count, least and greatest first column."""
    values = [row[0] for row in rows if row[0] is not None]
    return len(rows), min(values, default=None), max(values, default=None)


def first(rows: Rows) -> list[Any]:
    """The first column, in order."""
    return sorted(row[0] for row in rows)
