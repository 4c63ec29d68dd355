"""Snapshots and refs of the lake in memory."""

from __future__ import annotations

from tests.workers.lake.two_columns import COLUMNS, stamp
from workers.lake.memory.lake import MemoryLake, MemoryTable, ancestors_of, sources_of
from workers.lake.table import MAIN, LakeIdent, Stamp

IDENT = LakeIdent("s", "t")


def test_a_commit_is_a_new_snapshot_at_the_ref_s_tip() -> None:
    lake, table = MemoryLake(), MemoryTable(COLUMNS)
    lake.tables[IDENT] = table
    assert lake.rows(IDENT) == []
    first = lake.commit(table, MAIN, [{"id": 1, "v": "a"}], stamp(20))
    table.refs["b"] = first.snapshot_id
    second = lake.commit(table, "b", [{"id": 2, "v": "b"}], foreign=True)
    assert (lake.rows(IDENT), lake.rows(IDENT, "b")) == (
        [{"id": 1, "v": "a"}],
        [{"id": 2, "v": "b"}],
    )
    assert list(ancestors_of(table, "b")) == [second, first]
    assert list(ancestors_of(table, "no such ref")) == []
    assert (first.foreign, second.foreign, second.stamp) == (False, True, None)


def test_a_source_s_commit_carries_the_positions_of_all_sources_on() -> None:
    lake, table = MemoryLake(), MemoryTable(COLUMNS)
    assert sources_of(table, MAIN) == {}
    one, two = (Stamp("pg_1", stamp(lsn).lsn, "e", stamp(5).lsn, f"s{lsn}") for lsn in (20, 30))
    lake.commit(table, MAIN, [], one)
    lake.commit(table, MAIN, [], two)
    lake.commit(table, MAIN, [])
    assert sources_of(table, MAIN) == {"s20": one, "s30": two}


def test_a_power_cut_takes_what_was_not_made_durable() -> None:
    lake = MemoryLake()
    for name in ("kept", "lost"):
        lake.tables[LakeIdent("s", name)] = MemoryTable(COLUMNS)
    kept = LakeIdent("s", "kept")
    lake.commit(lake.tables[kept], MAIN, [{"id": 1, "v": "a"}])
    lake.make_durable([kept, LakeIdent("s", "missing")])
    for _ in range(2):
        lake.commit(lake.tables[kept], MAIN, [{"id": 2, "v": "b"}])
        lake.power_cut()
        assert lake.rows(kept) == [{"id": 1, "v": "a"}]
    assert list(lake.tables) == [kept]
