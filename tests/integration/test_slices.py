"""A transaction far beyond ``apply_work_mem`` on a real publisher: rows as the native twin has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.integration.flow import Flow
from tests.twin import column_names, in_order

TABLES: Final = ("keyed", "large", "whole", "emptied", "bare")
CHANGES: Final = 1_500  # 64 kB are some 350 changes

SCHEMA: Final = (
    "CREATE TABLE keyed (id int PRIMARY KEY, v text)",
    "CREATE TABLE large (id int PRIMARY KEY, v int, big text)",
    "ALTER TABLE large ALTER big SET STORAGE EXTERNAL",
    "CREATE TABLE whole (a int, b text)",
    "ALTER TABLE whole REPLICA IDENTITY FULL",
    "CREATE TABLE emptied (id int PRIMARY KEY)",
    "CREATE TABLE bare (a int)",
)

TRANSACTION: Final = "; ".join(
    [
        f"INSERT INTO keyed SELECT n, 'new' FROM generate_series(101, {CHANGES}) n",
        "INSERT INTO bare SELECT generate_series(1, 10)",
        f"INSERT INTO whole SELECT n % 7, 'b' FROM generate_series(1, {CHANGES}) n",
        "UPDATE keyed SET v = v || '!' WHERE id % 2 = 0",
        "UPDATE keyed SET id = -id WHERE id <= 300",
        "UPDATE keyed SET id = 5000 - id WHERE id < 0",
        "DELETE FROM keyed WHERE id % 3 = 0",
        "UPDATE large SET id = 1000 + id, v = v + 1",
        "UPDATE large SET v = v + 1",
        "UPDATE large SET id = id - 1000 WHERE id % 2 = 0",
        "UPDATE whole SET b = 'c' WHERE a = 3",
        "DELETE FROM whole WHERE a IN (3, 4)",
        "INSERT INTO emptied SELECT generate_series(100, 600)",
        "TRUNCATE emptied",
        "INSERT INTO emptied SELECT generate_series(1, 500)",
        "ALTER TABLE keyed ADD COLUMN later int",
        "UPDATE keyed SET v = 'seen' WHERE id % 5 = 0",
    ]
)


@pytest.fixture(scope="module")
def flow(make_flow: Callable[..., Flow], publisher: EmbeddedPublisher) -> Flow:
    flow = make_flow(publisher, "t_slices")
    flow.both(*SCHEMA)
    flow.sub.run("ALTER TABLE keyed ADD COLUMN later int")
    flow.pub.run(
        "INSERT INTO keyed SELECT n, 'old' FROM generate_series(1, 100) n",
        "INSERT INTO large SELECT n, 0, repeat(n::text, 5000) FROM generate_series(1, 200) n",
        "INSERT INTO whole SELECT n, NULL FROM generate_series(1, 9) n",
        "CREATE PUBLICATION pub FOR ALL TABLES",
    )
    flow.lake("CREATE NAMESPACE IF NOT EXISTS {t}")
    flow.lake("CREATE TABLE {t}.keyed (id int, v string, later int)")
    with flow.pgsub.settings(apply_work_mem="64kB"):
        flow.subscribe("sub", ["pub"], tables={"keyed": {"adopt": True}})
        flow.checkpoint("copied", *TABLES)
        flow.pub.run(f"BEGIN; {TRANSACTION}; COMMIT")
        flow.checkpoint("applied", *TABLES)
        flow.facts["log"] = flow.pgsub.log_file.read_text(errors="replace")
    return flow


@pytest.mark.parametrize("table", TABLES)
def test_every_slice_finds_the_rows_of_the_slices_before(flow: Flow, table: str) -> None:
    assert flow.same("copied", table) or table in ("emptied", "bare")
    assert flow.same("applied", table)


def test_the_slices_are_snapshots_without_a_position(flow: Flow) -> None:
    """Only a snapshot with a position is a whole number of transactions."""
    query = "SELECT count(*) AS n, count(summary['pgsub.lsn']) AS whole FROM {t}.bare.snapshots"
    [small] = flow.lake(query)
    [large] = flow.lake(query.replace("bare", "whole"))
    assert large["n"] - large["whole"] > small["n"] - small["whole"] + 2
    assert large["whole"] <= small["whole"] + 1  # the copy may have caught up with a batch


@pytest.mark.parametrize("table", ["keyed", "whole"])
def test_a_snapshot_with_a_position_is_read_as_whole_transactions(flow: Flow, table: str) -> None:
    """By ``VERSION AS OF``. A snapshot of a slice before the last reads as a part."""
    columns = column_names(flow.sub, table)
    snapshots = flow.lake(
        "SELECT snapshot_id, summary['pgsub.lsn'] IS NOT NULL AS whole"
        f" FROM {{t}}.{table}.snapshots"
    )
    query = f"SELECT {', '.join(columns)} FROM {{t}}.{table} VERSION AS OF "
    read: dict[bool, set[str]] = {True: set(), False: set()}
    for snapshot in snapshots:
        found = flow.lake(f"{query}{snapshot['snapshot_id']}")
        rows = in_order([tuple(row[name] for name in columns) for row in found])
        read[snapshot["whole"]].add(repr(rows))
    states = [repr(in_order(flow.recorded[label, table][1])) for label in ("copied", "applied")]
    assert set(states) <= read[True] <= {"[]", *states}
    assert read[False] - read[True]
