"""A table is cut into ctid ranges."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.workers.copying import BLOCK, Copying, PublisherTwin, copying
from workers.publisher.connection import WalReceiverConn
from workers.publisher.remote_table import fetch_leaves, fetch_remote_table_info
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
