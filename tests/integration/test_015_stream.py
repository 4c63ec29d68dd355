"""PostgreSQL's 015_stream to 018_stream_subxact_abort: transactions are sent while they run.

The twin's subscription keeps ``on``, because the parallel workers of 18.4 crash under savepoints.
The transactions that all modes play are too small for files before the commit; ``LARGE`` is for
``parallel``. A file in place of memory is a small
``spool_memory`` here. S-015-6 and S-015-7 are about locks that a lake lacks.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pytest

from tests.fix_publisher import requested_publisher
from tests.integration.flow import Flow, n_min_max
from tests.servers import every_version
from tests.waiting import wait_until

TABLES: Final = ("test_tab", "test_tab_2")
MODES: Final = ("on", "parallel", "file")
WIDE: Final = tuple(f"wide_{mode}" for mode in MODES)

SMALL: Final = "ALTER DATABASE {name} SET logical_decoding_work_mem = '64kB'"

SUBTRANSACTIONS: Final = "; ".join(
    [
        "INSERT INTO test_tab_2 SELECT 100000 + i FROM generate_series(1, 500) i",
        *(
            f"SAVEPOINT s{n}; INSERT INTO test_tab_2 SELECT 100000 + i"
            f" FROM generate_series({500 * n + 1}, {500 * n + 500}) i;"
            f" UPDATE test_tab_2 SET b = {n} WHERE a % 7 = {n};"
            f" DELETE FROM test_tab_2 WHERE a > 100000 AND a % 11 = {n}"
            for n in range(1, 5)
        ),
    ]
)

INTO_2: Final = "INSERT INTO test_tab_2 SELECT 200000 + i FROM generate_series"
ROLLED_BACK: Final = "; ".join(
    [
        f"{INTO_2}(3, 500) i",
        f"SAVEPOINT s1; {INTO_2}(501, 1000) i",
        f"SAVEPOINT s2; {INTO_2}(1001, 1500) i",
        f"SAVEPOINT s3; {INTO_2}(1501, 2000) i",
        "RELEASE s3; UPDATE test_tab_2 SET b = -3 WHERE a < 200000",
        f"ROLLBACK TO s2; {INTO_2}(2001, 2500) i",
        "DELETE FROM test_tab_2 WHERE a < 100000; TRUNCATE test_tab_2",
        f"ROLLBACK TO s1; {INTO_2}(2501, 3000) i",
        f"SAVEPOINT s4; {INTO_2}(3001, 3500) i",
        f"SAVEPOINT s5; {INTO_2}(3501, 4000) i",
    ]
)

NEW_COLUMNS: Final = "; ".join(
    [
        "INSERT INTO {t} VALUES (3, 'x')",
        "ALTER TABLE {t} ADD COLUMN c int",
        "INSERT INTO {t} SELECT i, 'y', 10 * i FROM generate_series(4, 1000) i",
        "ALTER TABLE {t} ADD COLUMN d int, ADD COLUMN e int",
        "INSERT INTO {t} SELECT i, 'z', i, i, i FROM generate_series(1001, 1999) i",
        "SAVEPOINT s; ALTER TABLE {t} DROP COLUMN e; ALTER TABLE {t} ADD COLUMN f text",
        "INSERT INTO {t} SELECT i, 'no', i, i, 'f' FROM generate_series(5001, 6000) i",
        "ROLLBACK TO s; INSERT INTO {t} VALUES (2000, 'e', 1, 2, 3)",
    ]
)


BIG: Final = (
    "CREATE TABLE big (a int PRIMARY KEY, b text, hashed text DEFAULT 'secret 1',"
    " nothing text DEFAULT 'secret 2', keyed text DEFAULT 'secret 3')"
)
KEY_ENV: Final = "PATH"  # the launcher has it
MASKED: Final = {
    "hashed": {"mask": "sha256"},
    "nothing": {"mask": "null"},
    "keyed": {"mask": "keyed-hash", "mask_key_env": KEY_ENV},
}
BIG_ROWS: Final = 15_000
LARGE: Final = (
    "INSERT INTO big SELECT i, repeat(md5(i::text), 60)"
    f" FROM generate_series({{first}}, {{first}} + {BIG_ROWS - 1}) i"
)
"""Rows of 1,920 bytes: 28 MB, which are more than the least slice."""
DIGEST: Final = "SELECT count(*) AS n, sum(a) AS a, sum(length(b)) AS b FROM {t}.big"


@pytest.fixture(scope="module", params=every_version(18))
def flow(request: pytest.FixtureRequest, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(requested_publisher(request), f"t015_{request.param}")
    flow.pub.run(
        SMALL.format(name=flow.pub.name),
        "CREATE TABLE test_tab (a int PRIMARY KEY, b bytea)",
        "CREATE TABLE test_tab_2 (a int PRIMARY KEY, b int)",
        "INSERT INTO test_tab VALUES (1, 'foo'), (2, 'bar')",
        *(f"CREATE TABLE wide_{mode} (a int PRIMARY KEY, b text)" for mode in MODES),
        *(f"INSERT INTO wide_{mode} VALUES (1, 'one'), (2, 'two')" for mode in MODES),
        BIG,
        "CREATE PUBLICATION pub FOR ALL TABLES",
    )
    flow.sub.run(
        BIG,
        "CREATE TABLE test_tab (a int PRIMARY KEY, b bytea, c int)",
        "CREATE TABLE test_tab_2 (a int PRIMARY KEY, b int)",
        *(
            f"CREATE TABLE wide_{mode} (a int PRIMARY KEY, b text, c int, d int, e int, f text)"
            for mode in MODES
        ),
    )
    flow.lake("CREATE NAMESPACE IF NOT EXISTS {t}")
    flow.lake("CREATE TABLE {t}.test_tab (a int, b binary, c int)")
    wider = "(a int, b string, c int, d int, e int, f string)"
    for table in WIDE:
        flow.lake(f"CREATE TABLE {{t}}.{table} {wider}")
    tables: dict[str, Any] = {table: {"adopt": True} for table in ("test_tab", *WIDE)}
    tables["big"] = {"columns": MASKED}
    name = flow.subscribe("sub", ["pub"], tables=tables, streaming="on")
    flow.checkpoint("copied", *TABLES, *WIDE)
    _play(flow, "on")
    _stream(flow, name, "SET", "(streaming", "=", "parallel)")
    _play(flow, "parallel")
    _play_large(flow)
    with flow.pgsub.settings(spool_memory="64kB"):
        flow.alter(name, "SET (binary = true)")
        _play(flow, "file")
    return flow


def _stream(flow: Flow, name: str, *words: str) -> None:
    """Change ours alone."""
    flow.pgsub.command("alter", name, *words)


def _play(flow: Flow, mode: str) -> None:
    """All of it; what is left of a mode's rows is deleted in the end."""
    pub = flow.pub
    with pub.connect() as one, pub.connect() as other:
        one.execute(
            "BEGIN; INSERT INTO test_tab SELECT i, sha256(i::text::bytea)"
            " FROM generate_series(3, 5000) i; UPDATE test_tab SET b = sha256(b) WHERE a % 2 = 0;"
            " DELETE FROM test_tab WHERE a % 3 = 0"
        )
        other.execute(
            "BEGIN; INSERT INTO test_tab SELECT i, sha256(i::text::bytea)"
            " FROM generate_series(5001, 9999) i; DELETE FROM test_tab WHERE a > 5000;"
            " INSERT INTO test_tab_2 SELECT i, 0 FROM generate_series(1, 3000) i; COMMIT"
        )
        pub.run("UPDATE test_tab_2 SET b = 1 WHERE a <= 10")
        one.execute("COMMIT")
    flow.checkpoint(f"{mode}: in turns", *TABLES)
    flow.facts[f"{mode}: streamed"] = _streamed(flow)
    pub.run(
        "UPDATE test_tab SET b = 'ordinary' WHERE a = 4", "INSERT INTO test_tab_2 VALUES (-1, -1)"
    )
    flow.checkpoint(f"{mode}: ordinary", *TABLES)
    pub.run(f"BEGIN; {SUBTRANSACTIONS}; COMMIT")
    flow.checkpoint(f"{mode}: subtransactions", *TABLES)
    pub.run(f"BEGIN; {ROLLED_BACK}; COMMIT")
    flow.checkpoint(f"{mode}: rolled back to", *TABLES)
    pub.run(
        "BEGIN; INSERT INTO test_tab_2 SELECT 300000 + i FROM generate_series(1, 3000) i;"
        " SAVEPOINT s; DELETE FROM test_tab_2 WHERE a % 2 = 0; RELEASE s; TRUNCATE test_tab;"
        " ROLLBACK",
        "INSERT INTO test_tab_2 VALUES (-2, -2)",
    )
    flow.checkpoint(f"{mode}: rolled back", *TABLES)
    wide = f"wide_{mode}"
    pub.run(f"BEGIN; {NEW_COLUMNS.format(t=wide)}; COMMIT", f"UPDATE {wide} SET d = 7 WHERE a = 1")
    flow.checkpoint(f"{mode}: columns", wide)
    pub.run("DELETE FROM test_tab WHERE a > 2", "DELETE FROM test_tab_2")
    flow.catch_up()


def _play_large(flow: Flow) -> None:
    """Large transactions beside each other and beside a small one; rolled back, in part and whole.

    Each step waits for the files of the step before.
    """
    pub, facts = flow.pub, flow.facts
    with pub.connect() as one, pub.connect() as other:
        one.execute("BEGIN; " + LARGE.format(first=1))
        wait_until(lambda: _parallel_workers(flow), 60, flow.pgsub.log_tail)
        wait_until(lambda: len(_files(flow)) == 1, 60, flow.pgsub.log_tail)
        other.execute("BEGIN; " + LARGE.format(first=200_000))
        wait_until(lambda: len(_parallel_workers(flow)) == 2, 60, flow.pgsub.log_tail)
        wait_until(lambda: len(_files(flow)) == 2, 60, flow.pgsub.log_tail)
        facts["workers"] = flow.pgsub.status("pg_stat_subscription")
        pub.run("INSERT INTO big VALUES (0, 'small')")
        _digest(flow, "large: before")
        one.execute("SAVEPOINT s; " + LARGE.format(first=100_000))
        one.execute(LARGE.format(first=100_000 + BIG_ROWS))  # one of twice the least slice
        wait_until(lambda: len(_files(flow)) == 3, 60, flow.pgsub.log_tail)
        one.execute(
            "ROLLBACK TO s; UPDATE big SET b = 'updated' WHERE a BETWEEN 1 AND 10;"
            " DELETE FROM big WHERE a BETWEEN 11 AND 20; INSERT INTO big VALUES (11, 'again')"
        )
        wait_until(lambda: len(_files(flow)) == 2, 60, flow.pgsub.log_tail)
        other.execute("COMMIT")
        _digest(flow, "large: the later one")
        one.execute("COMMIT")
        _digest(flow, "large: both")
        facts["committed"] = set(_files(flow))
        facts["masked"] = {row for path in _files(flow).values() for row in _masked(path)}
        one.execute("BEGIN; " + LARGE.format(first=300_000))
        wait_until(lambda: len(_files(flow)) == 3, 60, flow.pgsub.log_tail)
        one.execute("ROLLBACK")
    pub.run("DELETE FROM big WHERE a = 0")
    _digest(flow, "large: rolled back")
    facts["left"] = set(_files(flow))
    facts["notes"] = list((flow.pgsub.data_dir / "parallel").iterdir())
    facts["at the end"] = _parallel_workers(flow)


def _parallel_workers(flow: Flow) -> list[dict[str, Any]]:
    rows = flow.pgsub.status("pg_stat_subscription")
    return [row for row in rows if row["worker_type"] == "parallel apply"]


def _files(flow: Flow) -> dict[str, Path]:
    """The data files of large transactions, committed or not, by name."""
    tables = flow.pgsub.lake_dir / "warehouse" / flow.name
    return {path.name: path for path in tables.glob("*-big-*/data/pgsub-copy-*.parquet")}


def _masked(file: Path) -> set[tuple[Any, ...]]:
    """What a file has in the masked columns."""
    columns = pq.read_table(file, columns=list(MASKED), partitioning=None)
    return set(zip(*(column.to_pylist() for column in columns.columns), strict=True))


def _digest(flow: Flow, label: str) -> None:
    flow.catch_up()
    native = flow.sub.execute(DIGEST.format(t=flow.name))
    flow.facts[label] = native, [tuple(row.values()) for row in flow.lake(DIGEST)]


def _streamed(flow: Flow) -> int:
    """How many transactions the walsender of ours has sent while they ran."""
    counted = "SELECT stream_txns FROM pg_stat_replication_slots WHERE slot_name = %s"
    name = flow.subscriptions[0]
    wait_until(lambda: (flow.pub.value(counted, (name,)) or 0) > 0, 60, "the slot is counted")
    return int(flow.pub.value(counted, (name,)))


def same(flow: Flow, label: str) -> list[int]:
    """The number of rows of each table, which are the twin's."""
    return [len(flow.same(label, table)) for table in TABLES]


def test_s_015_1_the_copy(flow: Flow) -> None:
    assert same(flow, "copied") == [2, 0]
    assert {row[2] for row in flow.same("copied", "test_tab")} == {None}


def in_turns(flow: Flow, mode: str) -> None:
    assert flow.facts[f"{mode}: streamed"] > 0, "the transactions came at their commit"
    assert same(flow, f"{mode}: in turns") == [3334, 3000]
    assert n_min_max(flow.same(f"{mode}: in turns", "test_tab"))[2] == 5000
    assert sum(row[1] for row in flow.same(f"{mode}: in turns", "test_tab_2")) == 10


def test_s_015_2_two_large_transactions_in_turns(flow: Flow) -> None:
    in_turns(flow, "on")


def test_s_015_3_the_same_in_binary(flow: Flow) -> None:
    in_turns(flow, "file")


def test_s_015_4_an_ordinary_transaction_after_them(flow: Flow) -> None:
    assert (4, b"ordinary", None) in flow.same("on: ordinary", "test_tab")
    assert same(flow, "on: ordinary") == [3334, 3001]


def test_s_015_5_and_in_parallel(flow: Flow) -> None:
    in_turns(flow, "parallel")
    assert same(flow, "parallel: ordinary") == [3334, 3001]


def test_s_015_8_and_through_a_file(flow: Flow) -> None:
    assert same(flow, "file: ordinary") == [3334, 3001]


def digest(flow: Flow, label: str) -> int:
    """The number of rows, after a comparison with the twin."""
    native, ours = flow.facts[label]
    assert ours == native
    return int(ours[0][0])


def test_files_before_the_commit_and_rows_behind_it(flow: Flow) -> None:
    assert digest(flow, "large: before") == 1
    assert digest(flow, "large: the later one") == 1 + BIG_ROWS
    assert digest(flow, "large: both") == 1 + 2 * BIG_ROWS - 9
    assert digest(flow, "large: rolled back") == 2 * BIG_ROWS - 9


def test_what_is_rolled_back_leaves_no_file(flow: Flow) -> None:
    assert flow.facts["left"] == flow.facts["committed"]
    assert len(flow.facts["left"]) == 2
    assert flow.facts["notes"] == []


def test_masks_hold_in_files_before_the_commit(flow: Flow) -> None:
    hashed = hashlib.sha256(b"secret 1").hexdigest()
    keyed = hmac.new(os.fsencode(os.environ[KEY_ENV]), b"secret 3", "sha256").hexdigest()
    assert flow.facts["masked"] == {(hashed, None, keyed)}


def test_each_has_a_row_among_the_workers_while_it_runs(flow: Flow) -> None:
    rows = flow.facts["workers"]
    [leader] = [row for row in rows if row["worker_type"] == "apply"]
    parallel = [row for row in rows if row["worker_type"] == "parallel apply"]
    assert [row["leader_pid"] for row in parallel] == [leader["pid"]] * 2
    assert len({row["pid"] for row in rows}) == 3
    nothing = {"relid", "received_lsn", "last_msg_send_time", "latest_end_lsn", "latest_end_time"}
    assert all(row[name] is None for row in parallel for name in nothing)
    assert flow.facts["at the end"] == []


@pytest.mark.parametrize("mode", MODES)
def test_s_016_2_many_subtransactions(flow: Flow, mode: str) -> None:
    assert same(flow, f"{mode}: subtransactions")[1] > 4_500


def test_s_017_1_the_copy_into_a_wider_table(flow: Flow) -> None:
    for table in WIDE:
        assert [row[2:] for row in flow.same("copied", table)] == [(None,) * 4] * 2


@pytest.mark.parametrize("mode", MODES)
def test_s_017_2_columns_are_added_in_the_middle(flow: Flow, mode: str) -> None:
    """Those that a subtransaction dropped and added, and that was rolled back, have no trace."""
    rows = flow.same(f"{mode}: columns", f"wide_{mode}")
    assert len(rows) == 2000
    counts = [sum(row[at] is not None for row in rows) for at in (2, 3, 4, 5)]
    assert counts == [1997, 1001, 1000, 0]


@pytest.mark.parametrize("mode", MODES)
def test_s_018_1_4_6_rolled_back_to_savepoints(flow: Flow, mode: str) -> None:
    before = {row[0] for row in flow.same(f"{mode}: subtransactions", "test_tab_2")}
    rows = {row[0] for row in flow.same(f"{mode}: rolled back to", "test_tab_2")}
    kept = {200000 + n for n in [*range(3, 501), *range(2501, 4001)]}
    assert rows == before | kept


@pytest.mark.parametrize("mode", MODES)
def test_s_018_3_4_5_rolled_back_as_a_whole(flow: Flow, mode: str) -> None:
    before = same(flow, f"{mode}: rolled back to")
    assert same(flow, f"{mode}: rolled back") == [before[0], before[1] + 1]
