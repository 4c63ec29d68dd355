"""What each version of the publisher sends of transactions in progress, and what the spool makes.

The taken batches are replayed one message at a time, as PostgreSQL's subscriber does, and the rows
are compared with the publisher's. No lake is involved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from catalog.pg_lsn import LSN
from catalog.pg_subscription import Stream, Subscription
from config.guc import Settings
from tests.fix_publisher import Database
from tests.integration.test_publisher_versions import messages
from tests.servers import every_version
from tests.waiting import wait_until
from workers.proto.messages import (
    Begin,
    Commit,
    Delete,
    Insert,
    Message,
    Relation,
    Truncate,
    TupleData,
    Update,
)
from workers.publisher.connect import connect
from workers.stream.start import Stream as Running
from workers.stream.start import start_stream

ROWS: Final = "SELECT n, 'row ' || n FROM generate_series({}, {}) n"

every = pytest.mark.parametrize("each_database", every_version(18), indirect=True)


def prepare(database: Database) -> None:
    database.run(
        f"ALTER DATABASE {database.name} SET logical_decoding_work_mem = '64kB'",
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "CREATE TABLE u (id int PRIMARY KEY, v text)",
        "CREATE PUBLICATION pub FOR ALL TABLES",
    )


def streamed(
    database: Database,
    spool: Path,
    play: Callable[[Running], None],
    mode: Stream = Stream.ON,
    settings: Settings | None = None,
) -> list[list[Message]]:
    """The messages of each transaction that arrives while ``play`` runs."""
    sub = Subscription("mysub", database.dsn, ("pub",), substream=mode)
    found: list[list[Message]] = []
    with closing(connect(database.dsn, database.name)) as conn:
        start = conn.create_slot(database.name, temporary=True, snapshot="nothing")
        stream = start_stream(
            conn, sub, database.name, start, settings or Settings(), spool,
            wake_main=lambda: None, report=lambda _: None, remember_flush=lambda _: None,
            binary=False,
        )  # fmt: skip
        try:
            play(stream)
            end = LSN.parse(database.lsn())
            wait_until(lambda: stream.receiver._positions.last_received >= end, 120, "all has come")
            stream.receiver.raise_if_failed()
            while (batch := stream.spool.take(1 << 20, 1 << 30)) is not None:
                for message in messages(batch):
                    if isinstance(message, Begin):
                        found.append([])
                    found[-1].append(message)
        finally:
            stream.end()
    return found


def replayed(found: list[list[Message]]) -> dict[str, dict[Any, Any]]:
    """The tables by name: the rows by key."""
    names: dict[int, str] = {}
    tables: dict[str, dict[Any, Any]] = {"t": {}, "u": {}}

    def values(row: TupleData) -> tuple[str | None, ...]:
        return tuple(None if each.value is None else each.value.decode() for each in row)

    for transaction in found:
        assert isinstance(transaction[0], Begin)
        assert isinstance(transaction[-1], Commit)
        assert transaction[0].final_lsn == transaction[-1].commit_lsn
        for message in transaction[1:-1]:
            match message:
                case Relation(relid, _, relname):
                    names[relid] = relname
                case Insert(relid, new):
                    row = values(new)
                    assert row[0] not in tables[names[relid]]
                    tables[names[relid]][row[0]] = row
                case Update(relid, _, old, new):
                    row = values(new)
                    del tables[names[relid]][values(old)[0] if old else row[0]]
                    tables[names[relid]][row[0]] = row
                case Delete(relid, _, old):
                    del tables[names[relid]][values(old)[0]]
                case Truncate(_, _, relids):
                    for relid in relids:
                        tables[names[relid]].clear()
    return tables


def published(database: Database, table: str) -> dict[str, tuple[Any, ...]]:
    rows = database.execute(f"SELECT * FROM {table}")
    return {str(row[0]): tuple(None if v is None else str(v) for v in row) for row in rows}


def parts_sent(database: Database) -> int:
    counted = (
        "SELECT coalesce(sum(stream_count), 0) FROM pg_stat_replication_slots WHERE slot_name = %s"
    )
    return int(database.value(counted, (database.name,)))


def savepoints(database: Database, first: int) -> Iterator[str]:
    """A transaction of seven thousand rows, with half of the subtransactions rolled back."""
    yield f"INSERT INTO t {ROWS.format(first, first + 999)}"
    yield f"SAVEPOINT a; INSERT INTO t {ROWS.format(first + 1000, first + 1999)}"
    yield f"SAVEPOINT b; INSERT INTO t {ROWS.format(first + 2000, first + 2999)}"
    yield "SAVEPOINT c; UPDATE t SET v = v || '!'; RELEASE c"
    yield f"ROLLBACK TO b; INSERT INTO u {ROWS.format(first, first + 999)}"
    yield f"SAVEPOINT d; INSERT INTO t {ROWS.format(first + 3000, first + 3999)}; RELEASE d"
    yield f"UPDATE t SET id = -id WHERE id % 7 = 0 AND id BETWEEN {first} AND {first + 999}"
    yield "ROLLBACK TO a"
    yield f"INSERT INTO u {ROWS.format(first + 5000, first + 5999)}"
    yield (
        "DO $$ BEGIN FOR i IN 1..300 LOOP BEGIN"
        f" INSERT INTO u VALUES ({first} + 7000 + i, repeat('x', 500));"
        " IF i % 2 = 0 THEN RAISE EXCEPTION 'no'; END IF;"
        " EXCEPTION WHEN raise_exception THEN NULL; END; END LOOP; END $$"
    )
    yield f"DELETE FROM t WHERE id % 5 = 0 AND id BETWEEN {first} AND {first + 999}"


@every
@pytest.mark.parametrize("memory", ["memory", "files"])
def test_transactions_in_turns_with_subtransactions_rolled_back(
    each_database: Database, tmp_path: Path, memory: str
) -> None:
    prepare(each_database)

    def play(_: Running) -> None:
        with each_database.connect() as one, each_database.connect() as other:
            both = savepoints(each_database, 10_000), savepoints(each_database, 50_000)
            one.execute("BEGIN")
            other.execute("BEGIN")
            for number, (mine, others) in enumerate(zip(*both, strict=True)):
                one.execute(mine.encode())
                other.execute(others.encode())
                each_database.run(f"INSERT INTO u VALUES ({-number}, 'beside')")
            other.execute("COMMIT")
            one.execute("COMMIT")
        undone = "; ".join(savepoints(each_database, 90_000))
        each_database.run(f"BEGIN; {undone}; TRUNCATE t; ROLLBACK", "INSERT INTO u VALUES (1, 'z')")
        wait_until(lambda: parts_sent(each_database) > 10, 60, "parts are sent")

    small = Settings(spool_memory=64 << 10) if memory == "files" else None
    found = streamed(each_database, tmp_path, play, settings=small)
    tables = replayed(found)
    for table in ("t", "u"):
        assert tables[table] == published(each_database, table)
    assert len(tables["t"]) == 1_600
    ends = [each[-1].end_lsn for each in found if isinstance(each[-1], Commit)]
    assert ends == sorted(ends)
    changed = [each for each in found if len(each) > 2]  # before 15 empty ones are sent too
    assert len(changed) == 14


@every
def test_columns_change_in_the_middle_and_are_rolled_back(
    each_database: Database, tmp_path: Path
) -> None:
    """The rows behind the roll-back have the columns of before."""
    prepare(each_database)

    def play(_: Running) -> None:
        each_database.run(
            "INSERT INTO t VALUES (1, 'one')",
            f"BEGIN; INSERT INTO t {ROWS.format(100, 1999)}; ALTER TABLE t ADD COLUMN c int;"
            " INSERT INTO t SELECT n, 'c', n FROM generate_series(2000, 3999) n; SAVEPOINT s;"
            " ALTER TABLE t DROP COLUMN v;"
            " INSERT INTO t SELECT n, n FROM generate_series(4000, 5999) n; ROLLBACK TO s;"
            " INSERT INTO t VALUES (6000, 'd', 6); COMMIT",
            "INSERT INTO t VALUES (2, 'two', 2)",
            "BEGIN; ALTER TABLE t DROP COLUMN c;"
            f" INSERT INTO t {ROWS.format(7000, 9999)}; ROLLBACK",
            "INSERT INTO t VALUES (3, 'three', 3)",
        )
        wait_until(lambda: parts_sent(each_database) > 0, 60, "parts are sent")

    found = streamed(each_database, tmp_path, play)
    widths = [[len(row.new) for row in each if isinstance(row, Insert)] for each in found]
    assert [sorted(set(each)) for each in widths if each] == [[2], [2, 3], [3], [3]]
    rows = replayed(found)["t"]
    assert {key: row + (None,) * (3 - len(row)) for key, row in rows.items()} == (
        published(each_database, "t")
    )


@every
@pytest.mark.parametrize("mode", [Stream.OFF, Stream.ON, Stream.PARALLEL])
def test_nothing_is_confirmed_before_the_commit(
    each_database: Database, tmp_path: Path, mode: Stream
) -> None:
    """What is received of a transaction in progress waits for no batch; off receives nothing."""
    prepare(each_database)
    seen: list[tuple[int, bool]] = []

    def play(stream: Running) -> None:
        with each_database.connect() as session:
            session.execute("BEGIN")
            session.execute(f"INSERT INTO t {ROWS.format(1, 5000)}".encode())
            each_database.run("INSERT INTO u VALUES (1, 'beside')")
            wait_until(stream.spool.has_complete_transaction, 60, "the other has come")
            if mode is not Stream.OFF:
                wait_until(lambda: sum(stream.spool.size()) > 100_000, 60, "parts have come")
            else:
                assert sum(stream.spool.size()) < 1000
            seen.append((stream.spool.waiting(), stream.spool.has_open_transaction()))
            session.execute("COMMIT")

    found = streamed(each_database, tmp_path, play, mode)
    assert [len([row for row in each if isinstance(row, Insert)]) for each in found] == [1, 5000]
    assert seen[0][0] < 1000
    assert seen[0][1] is False


@pytest.mark.parametrize("each_database", every_version(18, since=16), indirect=True)
def test_each_change_is_a_part(each_database: Database, tmp_path: Path) -> None:
    """With ``debug_logical_replication_streaming = immediate`` small transactions come in parts."""
    prepare(each_database)
    name = each_database.name
    each_database.run(f"ALTER DATABASE {name} SET debug_logical_replication_streaming = immediate")

    def play(_: Running) -> None:
        each_database.run(
            "INSERT INTO t VALUES (1, 'one'), (2, 'two')",
            "BEGIN; SAVEPOINT a; INSERT INTO t VALUES (3, 'three'); ROLLBACK TO a; SAVEPOINT b;"
            " UPDATE t SET v = v || '!'; RELEASE b; SAVEPOINT c; DELETE FROM t; SAVEPOINT d;"
            " INSERT INTO u VALUES (1, 'no'); RELEASE d; ROLLBACK TO c; COMMIT",
            "BEGIN; DELETE FROM t; ROLLBACK",
            "DELETE FROM t WHERE id = 1",
        )
        wait_until(lambda: parts_sent(each_database) > 4, 60, "parts are sent")

    found = streamed(each_database, tmp_path, play)
    assert replayed(found) == {"t": {"2": ("2", "two!")}, "u": {}}
    assert len(found) == 3


@every
def test_a_large_transaction_comes_in_smaller_pieces(
    each_database: Database, tmp_path: Path
) -> None:
    """PostgreSQL's 64 MB would hold the transaction; a part is sent nevertheless."""
    _while_300_000_rows_are_sent(
        each_database,
        tmp_path,
        lambda: wait_until(lambda: parts_sent(each_database) >= 1, 60, "a part is sent"),
    )


@pytest.mark.parametrize("each_database", every_version(18, since=18), indirect=True)
def test_whoever_set_the_publisher_s_memory_keeps_it(
    each_database: Database, tmp_path: Path
) -> None:
    each_database.run(f"ALTER DATABASE {each_database.name} SET logical_decoding_work_mem = '64MB'")
    parts: list[int] = []
    _while_300_000_rows_are_sent(
        each_database, tmp_path, lambda: parts.append(parts_sent(each_database))
    )
    assert parts == [0]


def _while_300_000_rows_are_sent(
    database: Database, spool: Path, look: Callable[[], object]
) -> None:
    """Look when the walsender has read all rows, and then roll back.

    The walsender of 18 sends nothing of a transaction that was rolled back already.
    """
    database.run("CREATE TABLE t (id int, v text)", "CREATE PUBLICATION pub FOR ALL TABLES")
    read = "SELECT bool_or(sent_lsn >= %s::pg_lsn) FROM pg_stat_replication WHERE pid = %s"
    holder = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s"

    def play(_: Running) -> None:
        pid = database.value(holder, (database.name,))
        with database.connect() as connection:
            for each in ("BEGIN", f"INSERT INTO t {ROWS.format(1, 300_000)}"):
                connection.execute(each.encode())
            database.run("CREATE TABLE flushed ()")
            end = database.lsn()
            wait_until(lambda: database.value(read, (end, pid)), 60, "the walsender is through")
            look()
            connection.execute("ROLLBACK")

    found = streamed(database, spool, play)
    assert not [row for each in found for row in each if isinstance(row, Insert)]
