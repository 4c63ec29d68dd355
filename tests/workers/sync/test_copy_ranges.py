"""A table is locked, and cut into ctid ranges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from catalog.errcodes import TableRewritten
from tests.fix_publisher import Database
from tests.workers.copying import BLOCK, Copying, PublisherTwin, copying
from workers.publisher.connect import connect
from workers.publisher.connection import WalReceiverConn
from workers.publisher.remote_table import (
    PARTITIONED_TABLE,
    PLAIN_TABLE,
    Leaf,
    fetch_leaves,
    fetch_remote_table_info,
)
from workers.sync import copy_ranges


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Copying]:
    yield from copying(tmp_path)


@pytest.mark.parametrize(
    ("blocks", "sizes"),
    [
        (9, [4, 5]),
        (20, [6, 7, 7]),
        (33, [11, 11, 11]),
        (47, [7, 8, 8, 8, 8, 8]),
        (64, [10, 11, 11, 10, 11, 11]),
    ],
)
def test_the_ranges_cover_the_table_and_are_copied_evenly(
    world: Copying, blocks: int, sizes: list[int]
) -> None:
    """Eight blocks to a range and three at a time: three ranges, six, or fewer than three."""
    conn = PublisherTwin([], blocks=blocks)
    remote = fetch_remote_table_info(conn, "public", "a", ["pub"])
    leaves = fetch_leaves(conn, remote)
    settings = world.process.settings
    ranges = copy_ranges.cut_ranges(cast("WalReceiverConn", conn), remote, leaves, settings)
    assert [each.size // BLOCK for each in ranges] == sizes
    assert "ctid >=" not in ranges[0].statement
    assert "ctid <" not in ranges[-1].statement


def test_a_table_with_a_grant_on_the_whole_is_locked_by_lock_table(world: Copying) -> None:
    conn = PublisherTwin([])
    remote = fetch_remote_table_info(conn, "public", "a", ["pub"])
    leaves = fetch_leaves(conn, remote)
    assert copy_ranges.lock(cast("WalReceiverConn", conn), remote, leaves)
    assert conn.commands == ["LOCK TABLE ONLY public.a IN ACCESS SHARE MODE"]


def test_a_table_with_grants_on_columns_is_locked_by_a_select_and_is_one_range(
    world: Copying,
) -> None:
    """LOCK TABLE would be refused (42501), and so would a SELECT of ctids."""
    conn = PublisherTwin([], blocks=64, lockable=False)
    remote = fetch_remote_table_info(conn, "public", "a", ["pub"])
    leaves = fetch_leaves(conn, remote)
    by_ctid = copy_ranges.lock(cast("WalReceiverConn", conn), remote, leaves)
    assert not by_ctid
    assert conn.commands == ["SELECT id FROM ONLY public.a LIMIT 0"]
    (whole,) = copy_ranges.cut_ranges(
        cast("WalReceiverConn", conn), remote, leaves, world.process.settings, by_ctid=by_ctid
    )
    assert whole.statement == "COPY public.a (id) TO STDOUT (FORMAT csv)"
    assert whole.size == 64 * BLOCK


def test_a_partitioned_table_with_a_grant_on_the_root_is_read_through_the_root(
    world: Copying,
) -> None:
    conn = PublisherTwin([], blocks=64, lockable=False)
    plain = fetch_remote_table_info(conn, "public", "a", ["pub"])
    remote = replace(plain, relkind=PARTITIONED_TABLE)
    leaves = [Leaf(20000 + n, "parts", f"a_{n}", PLAIN_TABLE) for n in range(2)]
    assert not copy_ranges.lock(cast("WalReceiverConn", conn), remote, leaves)
    assert conn.commands == ["SELECT id FROM public.a LIMIT 0"]
    (whole,) = copy_ranges.cut_ranges(
        cast("WalReceiverConn", conn), remote, leaves, world.process.settings, by_ctid=False
    )
    assert whole.statement == "COPY (SELECT id FROM public.a) TO STDOUT (FORMAT csv)"


@pytest.mark.postgres
@pytest.mark.parametrize("change", ["swapped", "dropped", "other"])
def test_columns_with_other_names_than_in_the_snapshot_are_not_copied(
    each_database: Database, change: str
) -> None:
    """COPY t (a, b) would have the values of b in a."""
    table = f"t_{change}"
    each_database.run(
        f"CREATE TABLE {table} (gone int, a int PRIMARY KEY, b int)",
        f"ALTER TABLE {table} DROP COLUMN gone",
        f"CREATE TABLE {table}_2 (c int)",
        f"CREATE PUBLICATION {table} FOR TABLE {table}",
    )
    conn = connect(each_database.dsn, "test", replication=False)
    try:
        conn.command("BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ")
        remote = fetch_remote_table_info(conn, "public", table, [table])
        leaves = fetch_leaves(conn, remote)
        alter = f"ALTER TABLE {table} RENAME"
        statements = {
            "swapped": [f"{alter} a TO x", f"{alter} b TO a", f"{alter} x TO b"],
            "dropped": [f"ALTER TABLE {table} DROP COLUMN b"],
            "other": [f"ALTER TABLE {table}_2 RENAME c TO a", f"ALTER TABLE {table} ADD c int"],
        }
        each_database.run(*statements[change])
        if change == "other":
            assert copy_ranges.lock(conn, remote, leaves)
            return
        with pytest.raises(TableRewritten, match="were renamed while it was copied"):
            copy_ranges.lock(conn, remote, leaves)
    finally:
        conn.close()
