"""The sources of a shared table written together: rows as one by one, in a single snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from tests.fix_lake import Lake
from tests.workers.lake.contract import Make, append, merge, probe
from tests.workers.lake.scenarios.test_shared_contract import ONE, THREE, TWO, SharedTable, of
from workers.lake.destination import Destination
from workers.lake.effects import Counts
from workers.lake.segment import Segment, SourcePart
from workers.lake.storage.catalog_pointers import CatalogPointers
from workers.lake.storage.local_path import local_path
from workers.lake.table import LakeIdent

LONG: Final = pytest.mark.timeout(1800)
FOUR: Final = "4:public.d"
SNAPSHOT_BYTES, SOURCE_BYTES = 1_400, 200
"""What docs/maintenance.md says that a snapshot of a shared table takes in the metadata."""

Work = dict[str, list[Segment]]


def _together(table: SharedTable, work: Work, lsn: int) -> dict[str, Counts]:
    """Write and publish the parts in one call."""
    branch = table.branch()
    parts = [
        SourcePart([replace(each, source=source) for each in segments], of(source, lsn))
        for source, segments in work.items()
    ]
    effects = table.dest.write_sources(table.ident, branch, parts)
    counts = table.dest.count(effects)
    assert [effect.commits > 0 for effect in effects] == [True] + [False] * (len(parts) - 1)
    table.dest.publish(table.ident, branch, parts[-1].stamp or of("", 0))
    return dict(zip(work, counts, strict=True))


def _one_by_one(table: SharedTable, work: Work, lsn: int) -> dict[str, Counts]:
    return {source: table.batch(source, segments, lsn) for source, segments in work.items()}


def _work(dest: Destination) -> Sequence[Work]:
    rows = [(n, "v", "big") for n in (1, 2, 3)]

    def decide(keys: list[int]) -> Segment:
        assert keys == [1], "the source's own row 1 alone is found"
        return append(dest, [(9, "new", None)], source=FOUR)

    return [
        {source: [append(dest, rows)] for source in (ONE, TWO, THREE, FOUR)},
        {
            ONE: [merge(dest, [(0, 1, 7, "moved", None, True), (1, 2, None, None, None, False)],
                        unchanged=True)],
            TWO: [append(dest, [(4, "w", None)], truncate=True)],
            THREE: [merge(dest, [(0, 1, 1, "x", "y", False), (1, 5, None, None, None, False)]),
                    append(dest, [(5, "z", None)])],
            FOUR: [probe(dest, [1, 8], decide)],
        },
    ]  # fmt: skip


def test_parts_of_several_sources_are_those_of_one_by_one(
    make: Make, lake_ident: LakeIdent
) -> None:
    tables = [
        SharedTable(make(), replace(lake_ident, table=f"{lake_ident.table}{name}"))
        for name in ("_together", "_alone")
    ]
    for n in range(2):
        found = _together(tables[0], _work(tables[0].dest)[n], 20 + n)
        assert found == _one_by_one(tables[1], _work(tables[1].dest)[n], 20 + n)
        assert tables[0].rows() == tables[1].rows()
        assert (
            tables[0].positions()
            == tables[1].positions()
            == dict.fromkeys((ONE, TWO, THREE, FOUR), 20 + n)
        )


def test_a_source_that_is_behind_stops_all(make: Make, lake_ident: LakeIdent) -> None:
    table = SharedTable(make(), lake_ident)
    _together(table, {ONE: [], TWO: []}, 20)
    branch = table.branch()
    parts = [
        SourcePart([], of(ONE, 30), LSN(20)),
        SourcePart([], of(TWO, 30), LSN(25)),
    ]
    with pytest.raises(ReplicationError, match="is behind what was published"):
        table.dest.write_sources(table.ident, branch, parts)
    assert table.positions() == {ONE: 20, TWO: 20}


@pytest.mark.parametrize(
    ("count", "batches"), [(12, 25), pytest.param(50, 100, marks=[pytest.mark.long, LONG])]
)
def test_a_batch_of_many_sources_is_one_snapshot(
    iceberg: Make, lake_server: Lake, lake_ident: LakeIdent, count: int, batches: int
) -> None:
    table = SharedTable(iceberg(), lake_ident)
    sources = [f"{n:032x}:public.part_of_the_orders_{n:04}" for n in range(count)]
    _together(table, {source: [append(table.dest, [(0, "v", None)])] for source in sources}, 20)
    before = _snapshots(table)
    for batch in range(1, batches + 1):
        changed = [(0, batch - 1, batch, "v", None, False)]
        work: Work = {source: [merge(table.dest, changed)] for source in sources}
        _together(table, work, 20 + batch)
    assert table.positions() == dict.fromkeys(sources, 20 + batches)
    assert [row[0] for row in table.rows()] == [batches] * count
    assert _snapshots(table) - before == batches
    size = _metadata_bytes(lake_server, table.ident)
    assert size <= _snapshots(table) * (SNAPSHOT_BYTES + SOURCE_BYTES * len(sources))


def _snapshots(table: SharedTable) -> int:
    found = table.dest.table(table.ident)
    assert found is not None
    return len(found.snapshots)


def _metadata_bytes(lake: Lake, ident: LakeIdent) -> int:
    pointers = CatalogPointers(lake.data_dir / "lake" / "catalog.db").of([ident])
    return local_path(pointers[ident]).stat().st_size
