"""One seed: a random workload, random faults, and whether every row came through once.

The plan (``tests.chaos.plan``) follows from the seed alone, and so does every statement; what
happens when is the machine's. While a run goes on every step is written to ``events.jsonl`` in its
folder, which is kept when a row is wrong or the subscription stands still, and removed when all is
well.

1. Tables and first rows on the publisher, the same tables on a native subscriber; both subscribe,
   ours through a proxy that can be stalled and cut. Tables whose columns change are ours alone.
2. The workload runs; a thread beside it causes the faults when their time comes.
3. Everything is healed, both subscribers catch up, and the rows are compared.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import psycopg
from pyiceberg.exceptions import NoSuchTableError

from catalog.errcodes import ReplicationError
from catalog.store_sqlite import CatalogStore
from config.load import from_stored, load
from subscriber.commands.context import CommandContext
from subscriber.commands.create_drop import create_subscription, drop_subscription
from subscriber.commands.ddl_capture.script import install_script
from subscriber.commands.open_context import open_command_context
from subscriber.commands.refresh import refresh_publication
from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.chaos.compare import Compared, compare
from tests.chaos.ddl import Alterations, create_altered, schema_of
from tests.chaos.events import Events
from tests.chaos.faults import Fault, Victims, cause, reached
from tests.chaos.followed import await_equal
from tests.chaos.lake_faults import LAKE_KINDS, cause_at_lake
from tests.chaos.left_behind import needless_branches, orphan_files
from tests.chaos.outcome import Outcome
from tests.chaos.plan import STREAMED, Ddl, Plan
from tests.chaos.progress import await_confirmed
from tests.chaos.publisher_fault import publisher_fault
from tests.chaos.sessions import Sessions, answers
from tests.chaos.workload import LATE, TABLES, Workload, create_statements, first_rows, late_table
from tests.crash.family import FAMILY_SETTINGS, Family
from tests.crash.proxy import Proxy
from tests.fix_publisher import Database, new_database
from tests.twin import NativeTwin
from tests.waiting import wait_until

PUBLISHER_CONF: Final = {"wal_sender_timeout": "4s", "max_prepared_transactions": "64"}
"""A stalled connection is to be noticed within a run."""

NAME: Final = "chaos"
_ALTERED: Final = f"{NAME}_ddl"
"""The publication of the tables that change."""
PATIENCE: Final = 180.0
"""Seconds after healing until a subscription that confirms nothing counts as standing still."""

GRACE: Final = 5.0
"""Seconds after the workload in which somebody may still come to a place."""

_REFUSED: Final = (ReplicationError, AssertionError, psycopg.Error, NoSuchTableError)
"""What a command or a statement of ours may meet while something is down."""

_LINEAGE: Final = {"track_commit_timestamp": "on"}
"""Lake tables of Iceberg's format 3 then, with deletion vectors."""
_CAPTURED: Final = {"ddl_capture": "on"}
_DROPS: Final = {"on_dropped_column": "drop"}
_PREPARED: Final = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
_STEP_PAUSE: Final = 0.008

_STREAM_LARGE: Final = "ALTER DATABASE {} SET logical_decoding_work_mem = '64kB'"
_STREAM_EACH: Final = "ALTER DATABASE {} SET debug_logical_replication_streaming = immediate"


@dataclass
class Run:
    """A seed on servers that other seeds use too; ``play`` it once."""

    plan: Plan
    family: Family
    publisher: EmbeddedPublisher
    twin: NativeTwin | None
    folder: Path
    meddle: Callable[[Run], None] = lambda _run: None  # with the lake, before rows are compared
    ended: threading.Event = field(default_factory=threading.Event)
    commands: threading.Lock = field(default_factory=threading.Lock)
    hit: list[Fault] = field(default_factory=list)
    altered: int = 0
    publisher_fault: str | None = None
    orphans: tuple[str, ...] = ()

    def play(self) -> Outcome:
        """All of it; the folder stays only if something is wrong."""
        began = time.monotonic()
        self.events = Events(self.folder)
        self.events.add("plan", plan=str(self.plan), **_plain(self.plan))
        self.schema = f"s{self.plan.seed}"
        wide, prepares = self.plan.streamed is not None, self.plan.two_phase
        seed, ddl = self.plan.seed, self.plan.ddl
        self.alterations = Alterations(seed, self.schema, captured=ddl.captured) if ddl else None
        self.workload = Workload(
            seed,
            self.schema,
            wide=wide,
            prepares=prepares,
            alterations=self.alterations,
        )
        log_offset = self.family.log_size()
        compared, error = None, None
        try:
            with self._databases() as (self.pub, self.native), Proxy(self.pub) as self.proxy:
                self._configure("spark" if self.plan.spark_after == 0 else self.plan.writer)
                self._subscribe()
                try:
                    self._disturbed_workload()
                    compared = self._settle_and_compare()
                except Exception:
                    self.publisher_fault = publisher_fault(self.pub, NAME, self._publications())
                    raise
                finally:
                    self._leave()
        except Exception as failure:
            error = _named(failure)
        with suppress(AssertionError):  # then the next run says so
            self.family.configure()
        outcome = Outcome(
            self.plan,
            time.monotonic() - began,
            self.workload.transactions,
            compared,
            error,
            self.folder,
            tuple(self.hit),
            self.altered,
            self.publisher_fault,
            self.orphans,
        )
        self.events.add("outcome", outcome=str(outcome))
        self.events.close()
        if outcome.good:
            shutil.rmtree(self.folder)
        else:
            (self.folder / "pgsub.log").write_text(self.family.log_since(log_offset))
        return outcome

    # -- before ----------------------------------------------------------------------------------

    @contextmanager
    def _databases(self) -> Iterator[tuple[Database, Database | None]]:
        pub = new_database(self.publisher, f"chaos_{self.plan.seed}")
        native = new_database(self.twin.server, f"chaos_{self.plan.seed}") if self.twin else None
        try:
            yield pub, native
        finally:
            if native is not None:
                native.run(f"DROP SUBSCRIPTION IF EXISTS {self._native_name}")
                for (gid,) in native.execute(_PREPARED):  # a subscriber that stands still left it
                    native.run(f"ROLLBACK PREPARED '{gid}'")
                native.drop()
            pub.drop()

    @property
    def _native_name(self) -> str:
        return f"native_{self.plan.seed}"

    def _subscribe(self) -> None:
        root = "true" if self.plan.via_root else "false"
        if self.plan.streamed:
            self.pub.run(_STREAM_LARGE.format(self.pub.name))
        if self.plan.streamed == STREAMED[1]:
            self.pub.run(_STREAM_EACH.format(self.pub.name))
        self.pub.run(
            *create_statements(self.schema),
            *first_rows(self.schema),
            f"CREATE PUBLICATION {NAME} FOR TABLES IN SCHEMA {self.schema}"
            f" WITH (publish_via_partition_root = {root})",
        )
        self._publish_altered()
        options = {"binary": "true"} if self.plan.binary else {}
        options |= {"two_phase": "true"} if self.plan.two_phase else {}
        if self.twin and self.native:
            self.native.run(*create_statements(self.schema))
            self.twin.subscribe(self.native, self.pub, self._native_name, [NAME], **options)
        entry: dict[str, Any] = {
            "connection": self.proxy.conninfo,
            "publication": self._publications(),
            "with": {"binary": self.plan.binary, "two_phase": self.plan.two_phase},
            "sync_slot": "permanent" if self.plan.permanent else "temporary",
            # The twin's columns are changed by hand; so are those of the lake.
            "tables": {f"{self.schema}.acc": {"on_schema_change": "stop"}},
        }
        if self.plan.ddl and self.plan.ddl.refreshes:
            entry["refresh"] = "auto"
        content = {"subscriptions": {NAME: entry}, "settings": FAMILY_SETTINGS}
        file = self.family.pgsub.file(content, f"{NAME}.yaml")

        def create(context: CommandContext) -> None:
            create_subscription(load(file).subscriptions[0], context)

        self._command("create", create)
        self.family.subscriptions[NAME] = entry

    def _publications(self) -> list[str]:
        return [NAME, *([_ALTERED] if self.plan.ddl else [])]

    def _publish_altered(self) -> None:
        if self.plan.ddl is None:
            return
        root = "true" if self.plan.via_root else "false"
        if self.plan.ddl.captured:
            self.pub.execute(install_script())
        self.pub.run(
            *create_altered(self.schema),
            f"CREATE PUBLICATION {_ALTERED} FOR TABLES IN SCHEMA {schema_of(self.schema)}"
            f" WITH (publish_via_partition_root = {root})",
        )

    def _configure(self, writer: str) -> None:
        settings = _LINEAGE if self.plan.lineage else {}
        if self.plan.ddl:
            settings = {**settings, **(_CAPTURED if self.plan.ddl.captured else {})}
            settings = {**settings, **(_DROPS if self.plan.ddl.drops else {})}
        self.family.configure(writer=writer, **settings)

    def _command(self, what: str, act: Callable[[CommandContext], None]) -> None:
        """What a command does, in this process: starting one takes seconds."""
        self.events.add(what)
        data_dir = self.family.pgsub.data_dir
        store = CatalogStore.open(data_dir)
        try:
            with open_command_context(
                data_dir, store, from_stored(store.settings()), notify=lambda _: None
            ) as context:
                act(context)
        finally:
            store.close()

    def _persist(self, what: str, act: Callable[[], object]) -> None:
        """Until it works: a fault may be in the way."""

        def works() -> bool:
            try:
                with self.commands:
                    act()
            except _REFUSED as error:
                self.events.add("refused", command=what, error=str(error))
                return False
            return True

        wait_until(works, PATIENCE, what, pause=1.0)

    # -- meanwhile -------------------------------------------------------------------------------

    def _disturbed_workload(self) -> None:
        """The faults are this thread's: a child ends with the thread that started it."""
        with ThreadPoolExecutor(1, thread_name_prefix="workload") as pool:
            working = pool.submit(self._work)
            try:
                self._disturb(working)
                working.result()
            finally:
                self.ended.set()
        self._heal()

    def _disturb(self, working: Future[None]) -> None:
        victims = Victims(self.family, self.publisher, self.proxy, NAME, self.ended, self.commands)
        for fault in self.plan.faults:
            while self.workload.transactions < fault.after and not working.done():
                wait([working], 0.02)
            self.events.add("fault", fault=str(fault))
            try:
                hit = self._cause(fault, victims)
            except Exception as error:
                self.events.add("missed", fault=fault.kind, error=_named(error))
            else:
                self.events.add("caused", fault=fault.kind, hit=hit)
                self.hit += [fault] * bool(hit)

    def _cause(self, fault: Fault, victims: Victims) -> str:
        if fault.kind not in LAKE_KINDS:
            return cause(fault, victims)
        assert self.family.stack
        return cause_at_lake(fault, self.family.stack, self.ended)

    def _heal(self) -> None:
        places = [fault for fault in self.plan.faults if fault.place]
        with suppress(AssertionError):  # what was committed last is still being applied
            wait_until(lambda: len(self._reached()) == len(places), GRACE)
        self.hit += self._reached()
        self.family.failpoints.clear()
        self.events.add("healed", hit=[str(fault) for fault in self.hit])
        # Only a fault may end the launcher, and that starts it again.
        assert self.family.pgsub.launcher.is_running(), self.family.log_tail()

    def _reached(self) -> list[Fault]:
        return reached(self.plan.faults, self.family.failpoints)

    def _work(self) -> None:
        sessions = Sessions(self.pub)
        plan, workload = self.plan, self.workload
        late, column, dropped = plan.late_after, plan.column_after, plan.column_dropped_after
        spark = plan.spark_after or None
        try:
            for step in workload.steps():
                error = sessions.execute(step.session, step.sql)
                self.events.add("step", session=step.session, sql=step.sql, error=error)
                self.altered += error is None and ".alter(" in step.sql
                self.ended.wait(_STEP_PAUSE)
                if late is not None and workload.transactions >= late:
                    late = None
                    self._add_late_table(sessions)
                if column is not None and workload.transactions >= column:
                    column = None
                    self._add_column(sessions)
                if dropped is not None and column is None and workload.transactions >= dropped:
                    dropped = None
                    self._drop_column(sessions)
                if spark is not None and workload.transactions >= spark:
                    spark = None
                    self._persist("spark writes", lambda: self._configure("spark"))
                if workload.transactions >= plan.transactions:
                    break
        finally:
            sessions.close()
            self._end_prepared()

    def _end_prepared(self) -> None:
        """A prepared transaction keeps its locks, and the database cannot be dropped.

        A crash of the publisher may have met the statement that was to end one.
        """
        self.workload.prepared.clear()

        def end() -> None:
            for (gid,) in self.pub.execute(_PREPARED):
                self.pub.run(f"COMMIT PREPARED '{gid}'")
                self.events.add("ended", prepared=gid)

        self._persist("end what is prepared", end)

    def _add_late_table(self, sessions: Sessions) -> None:
        """A refresh waits for the locks of an open transaction that changed tables."""
        if self.plan.ddl:
            sessions.finish()
            self._end_prepared()
        create, rows = late_table(self.schema)
        self._persist("late table", lambda: self._on_both(create))
        self._persist("late rows", lambda: self.pub.run(rows))
        self.workload.late = True

        def refresh(context: CommandContext) -> None:
            sub = context.store.subscription_by_name(NAME)
            assert sub is not None
            conn = context.connect(sub)
            try:
                refresh_publication(sub, conn, context, copy_data=True)
            finally:
                conn.close()

        self._persist("refresh", lambda: self._command("refresh", refresh))
        if native := self.native:
            again = f"ALTER SUBSCRIPTION {self._native_name} REFRESH PUBLICATION"
            self._persist("native refresh", lambda: native.run(again))

    def _on_both(self, statement: str) -> None:
        for database in filter(None, (self.native, self.pub)):
            with suppress(psycopg.errors.DuplicateTable, psycopg.errors.DuplicateColumn):
                database.run(statement)

    def _add_column(self, sessions: Sessions) -> None:
        """On the subscribers first, as PostgreSQL's manual says; no transaction is open then.

        Who copies the table after the column is dropped again has no values in it, so both have
        to have copied it before.
        """
        sessions.finish()
        self._end_prepared()
        wait_until(
            lambda: self.family.states(NAME).get("acc") == "r", PATIENCE, self.family.log_tail
        )
        if self.twin and self.native:
            with suppress(AssertionError):  # a bug of PostgreSQL's may have ended it for good
                self.twin.wait_synced(self.native, 60)
        table = f"{self.schema}.acc"

        def on_the_lake() -> None:
            columns = self.family.pgsub.iceberg_table(self.schema, "acc").schema().column_names
            if "extra" not in columns:
                self.family.pgsub.command("sql", f"ALTER TABLE lake.{table} ADD COLUMN extra int")

        self._persist("lake column", on_the_lake)
        add = f"ALTER TABLE {table} ADD COLUMN extra int"
        self._persist("column", lambda: self._on_both(add))
        self.workload.extra = "extra"

    def _drop_column(self, sessions: Sessions) -> None:
        """On the publisher only: subscribers keep what they have."""
        sessions.finish()
        self._end_prepared()
        self.workload.extra = None
        drop = f"ALTER TABLE {self.schema}.acc DROP COLUMN IF EXISTS extra"
        self._persist("drop column", lambda: self.pub.run(drop))

    # -- after -----------------------------------------------------------------------------------

    def _settle_and_compare(self) -> Compared:
        self._await_publisher()
        if self.alterations and self.plan.ddl:
            self.pub.run(*self.alterations.last(home=not self.plan.ddl.refreshes))
        self.settle()
        native = self.native if self.native and self._native_is_there() else None
        self.events.add("caught up", native=native is not None)
        self._look_for_orphans()
        self.meddle(self)
        compared = compare(self.pub, native, self.family.pgsub, self.schema, self._tables())
        return self._with_altered(compared, self.plan.ddl) if self.plan.ddl else compared

    def _with_altered(self, compared: Compared, ddl: Ddl) -> Compared:
        """The tables that change, too; a table that is held until a user acts is an error."""
        schema, drops = schema_of(self.schema), ddl.drops
        rows, wrong = await_equal(self.pub, self.family.pgsub, _ALTERED, schema, drops=drops)
        held = [
            f"{rel['lake_schema']}.{rel['lake_table']}"
            for rel in self.family.pgsub.status("pg_subscription_rel")
            if rel["suspend_time"]
        ]
        assert not held, f"suspended: {held}"
        return replace(compared, rows=compared.rows + rows, wrong=(*compared.wrong, *wrong))

    def settle(self) -> None:
        """Until all that was committed is in the lake, and every table is ready."""
        await_confirmed(self.family, self.pub, NAME, PATIENCE)
        wait_until(
            lambda: set(self.family.states(NAME).values()) == {"r"},
            PATIENCE,
            lambda: f"all tables are ready: {self.family.states(NAME)}\n{self.family.log_tail()}",
        )
        await_confirmed(self.family, self.pub, NAME, PATIENCE)
        wait_until(lambda: not self._left(), PATIENCE, lambda: f"left behind: {self._left()}")

    def _left(self) -> list[str]:
        """Notes of files from before a commit, prepared transactions, branches; all have ended."""
        folder, stack = self.family.pgsub.data_dir, self.family.stack
        found = [*folder.glob("parallel/*"), *folder.glob("prepared/*/group_*")]
        branches = needless_branches(stack, self._schemas()) if stack else []
        return sorted([*(path.name for path in found), *branches])

    def _schemas(self) -> tuple[str, str]:
        return self.schema, schema_of(self.schema)

    def _look_for_orphans(self) -> None:
        if stack := self.family.stack:
            self.orphans = tuple(orphan_files(stack, self.family.pgsub.data_dir, self._schemas()))
            self.events.add("orphan files", files=self.orphans)

    def _await_publisher(self) -> None:
        """It may be coming up still."""
        wait_until(lambda: answers(self.pub), 60, "the publisher answers")

    def _native_is_there(self) -> bool:
        """Its worker may be one of those that a bug of PostgreSQL's ends for good."""
        assert self.twin
        assert self.native
        try:
            self.twin.wait_synced(self.native, 60)
            self.twin.wait_caught_up(self.pub, self._native_name, 60)
        except AssertionError as error:
            self.events.add("native subscriber stands still", error=str(error))
            return False
        return True

    def _tables(self) -> Sequence[str]:
        tables = [table for table in TABLES if table != "par" or self.plan.via_root]
        leaves = [] if self.plan.via_root else ["par_1", "par_2"]
        return [*tables, *leaves, *([LATE] if self.workload.late else [])]

    def _leave(self) -> None:
        self.ended.set()
        self.family.failpoints.clear()
        del self.family.subscriptions[NAME]
        self._persist("drop", lambda: self._command("drop", lambda s: drop_subscription(NAME, s)))
        self.family.forget_tables(*self._schemas())


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _plain(plan: Plan) -> dict[str, Any]:
    return {name: value for name, value in asdict(plan).items() if name != "faults"}
