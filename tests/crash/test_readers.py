"""Readers of ``main`` never see half a batch, whatever is written or killed meanwhile.

Every transaction of the workload keeps a rule in each table it touches. A reader looks at the
tables all the time, as any engine would, and holds what it sees against the rules: a snapshot of
main that breaks one would be a torn batch.
"""

from __future__ import annotations

import random
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, cast

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.crash.family import Family, wait_confirmed
from tests.fix_publisher import Database, new_database
from tests.twin import native_rows
from tests.waiting import wait_until
from workers.process.failpoints import APPLY

SCHEMA = "seen"
SUBSCRIPTION = "crash_seen"
ACCOUNTS = 30
GROUP = 7
REFILLED = 9
BOXES = 25
PAUSE = 0.05
TABLES = ("account", "grouped", "moving", "refilled", "box")


def create_tables(database: Database) -> None:
    """Each table with what its rule needs."""
    database.run(
        f"CREATE SCHEMA {SCHEMA}",
        f"CREATE TABLE {SCHEMA}.account (id int PRIMARY KEY, balance bigint)",
        f"INSERT INTO {SCHEMA}.account SELECT i, 100 FROM generate_series(1, {ACCOUNTS}) i",
        f"CREATE TABLE {SCHEMA}.grouped (grp int, n int)",
        f"CREATE TABLE {SCHEMA}.moving (id int PRIMARY KEY, v text)",
        f"INSERT INTO {SCHEMA}.moving SELECT i, 'v' FROM generate_series(0, {GROUP - 1}) i",
        f"CREATE TABLE {SCHEMA}.refilled (id int PRIMARY KEY, filling int)",
        f"INSERT INTO {SCHEMA}.refilled SELECT i, 0 FROM generate_series(1, {REFILLED}) i",
        f"CREATE TABLE {SCHEMA}.box (place int)",
        f"ALTER TABLE {SCHEMA}.box REPLICA IDENTITY FULL",
        f"INSERT INTO {SCHEMA}.box SELECT i % 3 FROM generate_series(1, {BOXES}) i",
        f"CREATE PUBLICATION pub_{SCHEMA} FOR TABLES IN SCHEMA {SCHEMA}",
    )


class Transactions(threading.Thread):
    """Transactions that keep the rules, until ``end``."""

    def __init__(self, database: Database) -> None:
        super().__init__(name="transactions", daemon=True)
        # Groups go on where an earlier test's ended.
        self.count = int(database.value(f"SELECT coalesce(max(grp), 0) FROM {SCHEMA}.grouped"))
        self.error: BaseException | None = None
        self._database = database
        self._random = random.Random(5)
        self._ended = threading.Event()

    def end(self) -> None:
        self._ended.set()
        self.join()
        assert self.error is None, self.error

    def run(self) -> None:
        try:
            with self._database.connect() as connection:
                while not self._ended.wait(PAUSE):
                    self.count += 1
                    with connection.transaction():
                        self._one(connection)
        except BaseException as error:
            self.error = error

    def _one(self, connection: psycopg.Connection) -> None:
        run = connection.execute
        low, high = self._random.sample(range(1, ACCOUNTS + 1), 2)
        run(f"UPDATE {SCHEMA}.account SET balance = balance - 7 WHERE id = %s", (low,))
        run(f"UPDATE {SCHEMA}.account SET balance = balance + 7 WHERE id = %s", (high,))
        for n in range(GROUP):
            run(f"INSERT INTO {SCHEMA}.grouped VALUES (%s, %s)", (self.count, n))
        run(f"UPDATE {SCHEMA}.moving SET id = id + {GROUP}")
        run(
            f"UPDATE {SCHEMA}.box SET place = place + 1 WHERE ctid ="
            f" (SELECT ctid FROM {SCHEMA}.box LIMIT 1)"
        )
        if self.count % 5 == 0:
            run(f"TRUNCATE {SCHEMA}.refilled")
            run(
                f"INSERT INTO {SCHEMA}.refilled SELECT i, %s FROM generate_series(1, {REFILLED}) i",
                (self.count,),
            )


def account(rows: pa.Table) -> str | None:
    """The money stays."""
    total = pc.sum(rows["balance"]).as_py()
    kept = (rows.num_rows, total) == (ACCOUNTS, 100 * ACCOUNTS)
    return None if kept else f"{rows.num_rows} accounts with {total}"


def grouped(rows: pa.Table) -> str | None:
    """All rows of a group, or none."""
    torn = {grp: n for grp, n in Counter(rows["grp"].to_pylist()).items() if n != GROUP}
    return f"groups of another size than {GROUP}: {torn}" if torn else None


def moving(rows: pa.Table) -> str | None:
    """All keys are moved together."""
    ids = sorted(cast("list[int]", rows["id"].to_pylist()))
    together = len(ids) == GROUP and ids[0] % GROUP == 0 and ids[-1] - ids[0] == GROUP - 1
    return None if together else f"keys {ids}"


def refilled(rows: pa.Table) -> str | None:
    """Never empty, never two fillings."""
    fillings = set(rows["filling"].to_pylist())
    whole = rows.num_rows == REFILLED and len(fillings) == 1
    return None if whole else f"{rows.num_rows} rows of fillings {fillings}"


def box(rows: pa.Table) -> str | None:
    """An update moves a box; it neither loses nor doubles one."""
    return None if rows.num_rows == BOXES else f"{rows.num_rows} boxes"


RULES: dict[str, Callable[[pa.Table], str | None]] = {
    "account": account,
    "grouped": grouped,
    "moving": moving,
    "refilled": refilled,
    "box": box,
}


class Reader(threading.Thread):
    """Reads the tables one after the other; remembers which snapshots broke a rule."""

    def __init__(self, family: Family) -> None:
        super().__init__(name="reader", daemon=True)
        self.snapshots: dict[str, set[int]] = {table: set() for table in TABLES}
        self.broken: list[str] = []
        self.error: BaseException | None = None
        self._family = family
        self._ended = threading.Event()

    def end(self) -> None:
        self._ended.set()
        self.join()

    def seen(self) -> int:
        """The least number of different snapshots seen of a table."""
        return min(map(len, self.snapshots.values()))

    def run(self) -> None:
        try:
            while not self._ended.is_set():
                for table in TABLES:
                    self._read(table)
        except BaseException as error:
            self.error = error

    def _read(self, table: str) -> None:
        loaded = self._family.pgsub.iceberg_table(SCHEMA, table)
        snapshot = loaded.current_snapshot()
        if snapshot is None or snapshot.snapshot_id in self.snapshots[table]:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pyiceberg's own
            rows = loaded.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
        self.snapshots[table].add(snapshot.snapshot_id)
        what = RULES[table](rows)
        if what is not None:
            self.broken.append(f"{table}, snapshot {snapshot.snapshot_id}: {what}")


@pytest.fixture(scope="module")
def database(publisher: EmbeddedPublisher, family: Family) -> Iterator[Database]:
    made = new_database(publisher, "crash_readers")
    create_tables(made)
    family.create(SUBSCRIPTION, made.dsn, [f"pub_{SCHEMA}"])
    family.pgsub.wait(SUBSCRIPTION)
    yield made
    family.drop(SUBSCRIPTION)
    made.drop()


KILLS: dict[str, Callable[[Family, int], Any]] = {
    "nobody": lambda family, pid: None,
    "apply worker": lambda family, pid: family.kill(pid),
    "lake server": lambda family, pid: family.kill_lake_server(),
}

HELD_AT = ("apply.branches_written", "apply.one_table_published")


@pytest.mark.parametrize("place", HELD_AT)
@pytest.mark.parametrize("victim", KILLS)
def test_a_reader_never_sees_half_a_batch(
    family: Family, database: Database, victim: str, place: str
) -> None:
    assert place in APPLY
    transactions, reader = Transactions(database), Reader(family)
    transactions.start()
    reader.start()
    try:
        wait_until(lambda: reader.error or reader.seen() >= 3, 240, family.log_tail)
        family.failpoints.arm(place)
        pid = family.failpoints.wait_held(place, 240, family.log_tail)
        KILLS[victim](family, pid)
        family.failpoints.release(place)
        before = reader.seen()
        wait_until(lambda: reader.error or reader.seen() >= before + 3, 240, family.log_tail)
    finally:
        family.failpoints.clear()
        transactions.end()
        wait_confirmed(family, database, SUBSCRIPTION)
        reader.end()
    assert reader.error is None
    assert reader.broken == []
    for table in TABLES:
        ours = family.pgsub.rows(SCHEMA, table)
        assert ours == native_rows(database, f"{SCHEMA}.{table}")


def test_the_rules_notice_a_torn_batch() -> None:
    """A reader that could not see one would prove nothing."""
    one = pa.table({"id": [1], "balance": [100], "grp": [1], "filling": [0], "place": [0]})
    assert all(rule(one) for rule in RULES.values())
