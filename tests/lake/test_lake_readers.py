"""DuckDB, pyiceberg, Spark and Trino read tables on S3 behind a REST catalog, while changes run.

Every table has both formats, with partitions and without. A transaction of a table counts in the
row with id 0, and the publisher's rows of the moment are noted before the commit. So the rows of a
reader tell the transaction at which the reader saw the table, and must be the publisher's rows of
exactly this transaction. Trino 476 reads format 2 only: each table of format 3 has vectors.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.fix_publisher import Database, new_database
from tests.harness import SETTINGS, python_rows
from tests.integration.readers import by_spark
from tests.lake import duckdb_reader, trino_reader
from tests.lake.lake_stack import LakePgsub, LakeStack
from tests.lake.newer_java import newer_java
from tests.lake.trino_reader import Trino, TrinoError, trino

pytestmark = [pytest.mark.lake, pytest.mark.timeout(900)]

SCHEMA = "lake_readers"
FORMATS = (2, 3)
LAYOUTS = {"plain": {}, "parted": {"partition_by": ["days(at)", "bucket(2, id)"]}}
TABLES = [f"{name}_{version}" for version in FORMATS for name in LAYOUTS]
TURNS = 60
TURNS_BESIDE_A_READ = 6
"""Without a limit a slow reader meets ever more files, and becomes slower."""

Rows = list[tuple[Any, ...]]


class Played:
    """The publisher, pgsub, the publisher's rows after each transaction, and what readers saw."""

    def __init__(self, pgsub: LakePgsub, database: Database, server: Trino | None) -> None:
        self.pgsub = pgsub
        self.database = database
        self.trino = server
        self.states: dict[str, dict[int, Rows]] = {table: {} for table in TABLES}
        self.seen: dict[tuple[str, str], list[Rows]] = {}

    def change(self, turn: int) -> None:
        """A transaction of each table: new, changed and deleted rows, and the turn's number."""
        for table in TABLES:
            self.database.execute(
                f"BEGIN; UPDATE {table} SET v = '{turn}' WHERE id = 0;"
                f" INSERT INTO {table} SELECT 1000 * {turn} + i, 'new', timestamp '2026-02-01'"
                f" + {turn} * interval '1 day', i / 4.0 FROM generate_series(1, 20) i;"
                f" UPDATE {table} SET v = 'changed {turn}', at = at + interval '1 day'"
                f" WHERE id % 17 = {turn % 17} AND id > 0;"
                f" DELETE FROM {table} WHERE id % 23 = {turn % 23} AND id > 0; COMMIT"
            )
            self.note(table, turn)

    def note(self, table: str, turn: int) -> None:
        """Keep the publisher's rows: nobody else changes the tables."""
        found = self.database.execute(f"SELECT id, v, at, price FROM {table} ORDER BY id")
        self.states[table][turn] = [tuple(row) for row in found]

    def read(self, reader: str, table: str) -> Rows:
        rows = python_rows(READERS[reader](self, table))
        return sorted(rows, key=lambda row: row[0])

    def reads(self) -> list[tuple[str, str]]:
        """Which reader reads which table."""
        return [read for read in READS if read[0] != "trino" or self.trino]


def by_duckdb(played: Played, table: str) -> pa.Table:
    return duckdb_reader.query(played.pgsub.catalog, f'SELECT * FROM lake."{SCHEMA}"."{table}"')


def by_trino(played: Played, table: str) -> pa.Table:
    if played.trino is None:
        pytest.skip(trino_reader.NO_JAVA)
    return played.trino.query(f'SELECT * FROM lake."{SCHEMA}"."{table}"')


READERS: dict[str, Callable[[Played, str], pa.Table]] = {
    "duckdb": by_duckdb,
    "pyiceberg": lambda played, table: played.pgsub.arrow(SCHEMA, table),
    "spark": lambda played, table: by_spark(played.pgsub, SCHEMA, table),
    "trino": by_trino,
}
READS = [
    (reader, table)
    for table in TABLES
    for reader in READERS
    if reader != "trino" or table[-1] == "2"
]


@pytest.fixture(scope="module")
def played(
    publisher: EmbeddedPublisher, stack: LakeStack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Played]:
    pgsub = LakePgsub(tmp_path_factory.mktemp("lake_readers") / "data")
    pgsub.catalog = stack.catalog_keys()
    with ExitStack() as after:
        after.callback(pgsub.stop)
        lake: dict[str, Any] = {"catalog": pgsub.catalog}
        # Compaction would leave a table without deletes at a moment of its own.
        settings = {**SETTINGS, "autovacuum": False}
        pgsub.up({"subscriptions": {}, "lake": lake, "settings": settings}, timeout=300)
        database = new_database(publisher, SCHEMA, schema=SCHEMA)
        after.callback(database.drop)
        java, server = newer_java(trino_reader.LEAST_JAVA), None
        if java:
            folder = tmp_path_factory.mktemp("trino")
            server = after.enter_context(trino(java, folder, pgsub.catalog))
        made = Played(pgsub, database, server)
        for table in TABLES:
            database.run(
                f"CREATE TABLE {table} (id int PRIMARY KEY, v text, at timestamp,"
                " price numeric(10,2))",
                f"INSERT INTO {table} SELECT i, 'old', timestamp '2026-01-01' + i % 9 * interval"
                " '1 day', i / 4.0 FROM generate_series(1, 500) i",
                f"INSERT INTO {table} VALUES (0, '0', NULL, NULL)",
            )
            made.note(table, 0)
        for version in FORMATS:
            names = {f"{name}_{version}": layout for name, layout in LAYOUTS.items()}
            database.run(f"CREATE PUBLICATION pub_{version} FOR TABLE {', '.join(names)}")
            tables = {f"{SCHEMA}.{name}": layout for name, layout in names.items()}
            if version != FORMATS[0]:
                known = {**lake, "format_version": version}
                pgsub.reload({"subscriptions": {}, "lake": known, "settings": settings})
            pgsub.create(f"readers_{version}", database.dsn, [f"pub_{version}"], tables=tables)
            after.callback(pgsub.drop, f"readers_{version}")
            pgsub.wait(f"readers_{version}")
        _play(made)
        yield made


def _play(made: Played) -> None:
    """Changes in a thread, while every reader reads every table beside some of them."""
    reads = made.reads()
    allowed = threading.Semaphore(0)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            for turn in range(1, max(TURNS, TURNS_BESIDE_A_READ * len(reads)) + 1):
                allowed.acquire()
                made.change(turn)
        except BaseException as error:
            errors.append(error)

    changes = threading.Thread(target=run)
    changes.start()
    try:
        for read in reads:
            allowed.release(TURNS_BESIDE_A_READ)
            made.seen[read] = [made.read(*read)]
    finally:
        allowed.release(TURNS)
        changes.join()
    assert not errors
    for version in FORMATS:
        made.pgsub.wait(f"readers_{version}")
    for read in reads:
        made.seen[read].append(made.read(*read))


def seen(played: Played, reader: str, table: str) -> list[Rows]:
    if (reader, table) not in played.seen:
        pytest.skip(trino_reader.NO_JAVA)
    return played.seen[reader, table]


@pytest.mark.parametrize(("reader", "table"), READS)
def test_a_reader_sees_the_publisher_s_rows_of_one_transaction(
    played: Played, reader: str, table: str
) -> None:
    for rows in seen(played, reader, table):
        turn = int(rows[0][1])
        assert rows == played.states[table][turn]


@pytest.mark.parametrize(("reader", "table"), READS)
def test_the_last_rows_are_seen_at_the_end(played: Played, reader: str, table: str) -> None:
    states = played.states[table]
    assert len(states) > TURNS
    assert seen(played, reader, table)[-1] == states[max(states)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_trino_476_refuses_vectors_by_an_error(played: Played, layout: str) -> None:
    """No deleted row is shown; docs/reading.md says that format 3 needs Trino 480."""
    with pytest.raises(TrinoError, match="PUFFIN"):
        played.read("trino", f"{layout}_3")


def test_some_rows_were_read_while_changes_ran(played: Played) -> None:
    ends = {table: max(states) for table, states in played.states.items()}
    read = [(int(found[0][0][1]), ends[table]) for (_, table), found in played.seen.items()]
    assert any(0 < turn < end for turn, end in read)


@pytest.mark.parametrize("table", TABLES)
def test_deletes_are_position_deletes_or_vectors(played: Played, table: str) -> None:
    """Equality deletes would be content 2: Snowflake refuses them."""
    found = played.pgsub.iceberg_table(SCHEMA, table)
    assert found.format_version == int(table[-1])
    files = found.inspect.files().to_pylist()
    contents = {int(str(each["content"])) for each in files}
    assert contents == {0, 1}
    kinds = {str(each["file_format"]).upper() for each in files if each["content"]}
    assert kinds == ({"PUFFIN"} if found.format_version == 3 else {"PARQUET"})
