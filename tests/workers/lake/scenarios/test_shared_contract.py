"""What every lake must do with a table that several sources write to; Iceberg and its twin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from tests.workers.lake.contract import (
    COLUMNS,
    PUBLISHED,
    Make,
    append,
    full,
    merge,
    probe,
    read_rows,
    stamp,
)
from workers.lake.destination import Destination
from workers.lake.effects import Counts
from workers.lake.memory.destination import MemoryDestination
from workers.lake.segment import Generated, Segment
from workers.lake.sql.statements import sql_text, table_path
from workers.lake.table import MAIN, SHARED, SOURCE_COLUMN, LakeColumn, LakeIdent, Stamp

ONE, TWO, THREE = "9f1c:public.a", "it's:\"b`.c", "3:public.a"


def of(source: str, lsn: int) -> Stamp:
    return replace(stamp(lsn, f"epoch of {source}"), source=source)


class SharedTable:
    """A table of two sources; each batch is on a branch of its own."""

    def __init__(self, dest: Destination, ident: LakeIdent, generated: Generated = ()) -> None:
        self.dest = dest
        self.ident = ident
        self.attempt = 0
        source = LakeColumn(SOURCE_COLUMN, pa.string())
        more = dest.generated_columns(ident, (*COLUMNS, source), generated)
        columns = (*COLUMNS, *more, source)
        made = dest.create_table(ident, columns, owner=SHARED, relid=7, stamp=of(ONE, 10))
        assert (made.owner, made.stamp, dict(made.sources)) == (SHARED, None, {})

    def branch(self) -> str:
        self.attempt += 1
        name = f"pgsub_1_1_{self.attempt}"
        self.dest.create_branch(self.ident, name)
        return name

    def batch(self, source: str, segments: Sequence[Segment], lsn: int) -> Counts:
        branch = self.branch()
        own = [replace(segment, source=source) for segment in segments]
        counts = self.dest.write(self.ident, branch, own, of(source, lsn))
        self.dest.publish(self.ident, branch, of(source, lsn))
        return counts

    def rows(self) -> list[tuple[Any, ...]]:
        """(id, v, source)."""
        return [(row[0], row[1], row[-1]) for row in read_rows(self.dest, self.ident)]

    def computed(self, source: str) -> list[tuple[Any, ...]]:
        """(id, v, big, twice, whose) of a source's rows."""
        found = [row for row in read_rows(self.dest, self.ident) if row[-1] == source]
        return [(*row[:3], *row[4:6]) for row in found]

    def positions(self) -> dict[str, int]:
        found = self.dest.table(self.ident)
        assert found is not None
        return {source: int(each.lsn) for source, each in found.sources.items()}


def change_as_another(dest: Any, ident: LakeIdent) -> None:
    """A new version of every row, by another engine."""
    if isinstance(dest, MemoryDestination):
        table = dest.lake.tables[ident]
        rows = [{**row, "v": "theirs"} for row in dest.lake.rows(ident)]
        dest.lake.commit(table, MAIN, rows, foreign=True)
    else:
        sql = sql_text("UPDATE", table_path(ident), "SET v = 'theirs'")
        dest._sessions.get().command(sql, "updating")


DOUBLE: Generated = (("twice", "id * 2"), ("whose", "concat(v, coalesce(big, '-'), _pgsub_source)"))
TRIPLE: Generated = (("twice", "id * 3"), ("whose", "concat(_pgsub_source, v)"))
BIG = "x" * 10


@pytest.fixture
def shared(make: Make, lake_ident: LakeIdent) -> SharedTable:
    return SharedTable(make(), lake_ident)


@pytest.fixture
def generating(make: Make, lake_ident: LakeIdent) -> SharedTable:
    """ONE doubles, TWO triples, THREE generates nothing; each has row 1 and 2."""
    made = SharedTable(make(), lake_ident, DOUBLE)
    for source, generated in ((ONE, DOUBLE), (TWO, TRIPLE), (THREE, ())):
        rows = [(1, "a", BIG), (2, "b", None)]
        made.batch(source, [append(made.dest, rows, generated=generated)], 20)
    return made


def test_rows_and_positions_of_two_sources(shared: SharedTable) -> None:
    shared.batch(ONE, [append(shared.dest, [(1, "a", None)])], 20)
    shared.batch(TWO, [append(shared.dest, [(1, "b", None)])], 5)
    assert shared.rows() == [(1, "a", ONE), (1, "b", TWO)]
    assert shared.positions() == {ONE: 20, TWO: 5}
    found = shared.dest.fence(shared.ident)
    assert found.position(ONE) == of(ONE, 20)
    assert found.position(TWO) == of(TWO, 5)
    assert found.position("nobody") is None
    assert shared.dest.table(shared.ident) == found


def test_a_merge_finds_the_source_s_rows_only(shared: SharedTable) -> None:
    for source in (ONE, TWO):
        shared.batch(source, [append(shared.dest, [(n, "v", None) for n in (1, 2, 3)])], 20)
    changes = [
        (0, 1, 1, "new", None, False),
        (1, 2, None, None, None, False),
        (0, 9, 9, "no", None, False),
    ]
    counts = shared.batch(TWO, [merge(shared.dest, changes)], 30)
    assert counts == Counts(merged=2, update_missing=1)
    assert shared.rows() == [
        (1, "new", TWO),
        (1, "v", ONE),
        (2, "v", ONE),
        (3, "v", ONE),
        (3, "v", TWO),
    ]


def test_a_probe_finds_the_source_s_keys_only(shared: SharedTable) -> None:
    shared.batch(ONE, [append(shared.dest, [(1, "v", None), (2, "v", None)])], 20)
    shared.batch(TWO, [append(shared.dest, [(2, "v", None)])], 20)
    found: list[list[int]] = []

    def resolve(keys: list[int]) -> Segment:
        found.append(keys)
        return Segment(PUBLISHED, ("id",), source=TWO)

    shared.batch(TWO, [probe(shared.dest, [1, 2, 3], resolve)], 30)
    assert found == [[2]]


def test_whole_rows_of_the_source_only(shared: SharedTable) -> None:
    for source in (ONE, TWO):
        shared.batch(source, [append(shared.dest, [(1, "a", None), (1, "a", None)])], 20)
    found: list[int] = []

    def resolve(hits: list[tuple[Any, ...]]) -> tuple[list[Any], list[Any]]:
        found.append(len(hits))
        return [(f, p, 1, None, None) for _, f, p in hits], [(2, "b", None)]

    shared.batch(TWO, [full(shared.dest, [(1, "a", 3)], resolve)], 30)
    assert found == [2]
    assert shared.rows() == [(1, "a", ONE), (1, "a", ONE), (2, "b", TWO)]


def test_truncate_takes_the_source_s_rows(shared: SharedTable) -> None:
    for source in (ONE, TWO):
        shared.batch(source, [append(shared.dest, [(1, "a", None)])], 20)
    emptied = replace(append(shared.dest, [(2, "b", None)]), truncate=True)
    shared.batch(ONE, [Segment(()), emptied], 30)
    assert shared.rows() == [(1, "a", TWO), (2, "b", ONE)]
    shared.batch(ONE, [Segment((), truncate=True)], 40)
    shared.batch(ONE, [Segment((), truncate=True)], 50)  # nothing is there
    shared.batch(TWO, [Segment((), truncate=True)], 30)
    assert shared.rows() == []
    assert shared.positions() == {ONE: 50, TWO: 30}


def test_who_comes_second_is_refused_and_takes_the_first_one_s_position_along(
    shared: SharedTable,
) -> None:
    """Also where the branch was made before: what counts is what the branch holds."""
    late, dest = shared.branch(), shared.dest
    shared.batch(ONE, [append(dest, [(1, "a", None)])], 20)
    rows = replace(append(dest, [(2, "b", None)]), source=TWO)
    dest.write(shared.ident, late, [rows], of(TWO, 7))
    with pytest.raises(ReplicationError) as error:
        dest.publish(shared.ident, late, of(TWO, 7))
    assert error.value.code == "40001"
    again = shared.branch()
    dest.write(shared.ident, again, [rows], of(TWO, 7))
    dest.publish(shared.ident, again, of(TWO, 7))
    assert shared.positions() == {ONE: 20, TWO: 7}
    assert shared.rows() == [(1, "a", ONE), (2, "b", TWO)]


def test_a_copy_replaces_its_source_s_rows(shared: SharedTable) -> None:
    """Made on a branch, moved to another one because main has moved meanwhile."""
    dest = shared.dest
    for source in (ONE, TWO):
        shared.batch(source, [append(dest, [(1, "old", None)])], 20)
    copy = shared.branch()
    copied = replace(append(dest, [(2, "new", None), (3, "new", None)]), truncate=True, source=ONE)
    dest.write(shared.ident, copy, [copied], of(ONE, 30))
    shared.batch(TWO, [append(dest, [(4, "more", None)])], 25)
    moved = shared.branch()
    whole = Segment((), truncate=True, source=ONE, from_branch=copy)
    dest.write(shared.ident, moved, [whole], of(ONE, 30))
    dest.publish(shared.ident, moved, of(ONE, 30))
    assert shared.rows() == [(1, "old", TWO), (2, "new", ONE), (3, "new", ONE), (4, "more", TWO)]
    assert shared.positions() == {ONE: 30, TWO: 25}


def test_a_copy_forgets_other_writers_for_its_source(shared: SharedTable) -> None:
    dest = shared.dest

    def beside() -> frozenset[str]:
        found = dest.table(shared.ident)
        assert found is not None
        return found.written_by_others & {ONE, TWO}

    for source in (ONE, TWO):
        shared.batch(source, [append(dest, [(1, "old", None)])], 20)
    assert beside() == set()
    change_as_another(dest, shared.ident)
    assert beside() == {ONE, TWO}
    copy, anew = shared.branch(), replace(of(ONE, 30), epoch="anew")
    copied = replace(append(dest, [(2, "new", None)]), truncate=True, source=ONE)
    dest.write(shared.ident, copy, [copied], anew)
    dest.publish(shared.ident, copy, anew)
    assert beside() == {TWO}
    shared.batch(TWO, [append(dest, [(2, "more", None)])], 30)
    assert beside() == {TWO}
    assert shared.rows() == [(1, "theirs", TWO), (2, "more", TWO), (2, "new", ONE)]


def test_a_branch_that_is_behind_is_not_written_to(shared: SharedTable) -> None:
    dest = shared.dest
    for lsn in (20, 30):
        shared.batch(ONE, [append(dest, [(lsn, "a", None)])], lsn)
    rows = [replace(append(dest, [(1, "b", None)]), source=ONE)]
    dest.write(shared.ident, shared.branch(), rows, of(ONE, 40), LSN(30))
    for stamped, base in ((of(ONE, 40), 31), (replace(of(ONE, 40), epoch="another"), 30)):
        with pytest.raises(ReplicationError) as error:
            dest.write(shared.ident, shared.branch(), rows, stamped, LSN(base))
        assert error.value.code == "55000"
    with pytest.raises(ReplicationError):
        dest.write(shared.ident, shared.branch(), rows, of(TWO, 1), LSN(1))


def test_only_the_named_branches_go(shared: SharedTable) -> None:
    dest = shared.dest
    dest.create_branch(shared.ident, "pgsub_mine_1")
    dest.create_branch(shared.ident, "pgsub_yours_1")
    dest.drop_branches(shared.ident, prefix="pgsub_mine_")
    rows = replace(append(dest, [(1, "a", None)]), source=ONE)
    with pytest.raises(ReplicationError):
        dest.write(shared.ident, "pgsub_mine_1", [rows], of(ONE, 20))
    dest.write(shared.ident, "pgsub_yours_1", [rows], of(ONE, 20))
    dest.publish(shared.ident, "pgsub_yours_1", of(ONE, 20))
    assert shared.rows() == [(1, "a", ONE)]


def test_positions_outlive_expiry_and_what_others_commit(shared: SharedTable) -> None:
    shared.batch(ONE, [append(shared.dest, [(1, "a", None)])], 20)
    for n in range(3):
        shared.batch(TWO, [append(shared.dest, [(n, "b", None)])], 20 + n)
    shared.dest.fence(shared.ident)
    shared.dest.drop_branches(shared.ident)
    shared.dest.expire(shared.ident, retain=1)
    assert shared.positions() == {ONE: 20, TWO: 22}


def test_an_adopted_table_has_no_position_of_its_own(make: Make, lake_ident: LakeIdent) -> None:
    dest = make()
    columns = (*COLUMNS, LakeColumn(SOURCE_COLUMN, pa.string()))
    dest.create_table(lake_ident, columns, owner="gone", relid=7, stamp=stamp(10))
    adopted = dest.adopt_table(lake_ident, owner=SHARED, stamp=of(ONE, 20), former_owners=["gone"])
    assert (adopted.owner, dict(adopted.sources)) == (SHARED, {})
    joined = dest.adopt_table(lake_ident, owner=SHARED, stamp=of(TWO, 20))
    assert joined.position(TWO) is None


# -- columns that are generated -------------------------------------------------------------------

DOUBLED = [(1, "a", BIG, 2, f"a{BIG}{ONE}"), (2, "b", None, 4, f"b-{ONE}")]
TRIPLED = [(1, "a", BIG, 3, f"{TWO}a"), (2, "b", None, 6, f"{TWO}b")]
UNTOUCHED = [(1, "a", BIG, None, None), (2, "b", None, None, None)]


def test_each_source_generates_by_its_own_expressions(generating: SharedTable) -> None:
    """Also over the column that says whose row it is; a source without them leaves NULL."""
    assert generating.computed(ONE) == DOUBLED
    assert generating.computed(TWO) == TRIPLED
    assert generating.computed(THREE) == UNTOUCHED


def test_an_update_generates_for_its_source_only(generating: SharedTable) -> None:
    """With another key, and with a value that did not travel."""
    dest = generating.dest
    changes = [(0, 1, 10, "n", None, True), (0, 2, 2, "m", "y", False)]
    changed = merge(dest, changes, unchanged=True, generated=DOUBLE)
    assert generating.batch(ONE, [changed], 30) == Counts(merged=2)
    assert generating.computed(ONE) == [
        (2, "m", "y", 4, f"my{ONE}"),
        (10, "n", BIG, 20, f"n{BIG}{ONE}"),
    ]
    assert generating.computed(TWO) == TRIPLED
    generating.batch(THREE, [merge(dest, [(0, 1, 1, "n", BIG, False)])], 30)
    assert generating.computed(THREE) == [(1, "n", BIG, None, None), UNTOUCHED[1]]


def test_so_does_one_of_a_whole_row(generating: SharedTable) -> None:
    def resolve(hits: list[tuple[Any, ...]]) -> tuple[list[Any], list[Any]]:
        [(_, f, p)] = hits
        return [(f, p, 0, 5, "c")], [(7, "d", None)]

    changed = full(generating.dest, [(2, "b", 3)], resolve, generated=TRIPLE)
    generating.batch(TWO, [changed], 30)
    assert generating.computed(ONE) == DOUBLED
    new = [(5, "c", None, 15, f"{TWO}c"), (7, "d", None, 21, f"{TWO}d")]
    assert generating.computed(TWO) == [TRIPLED[0], *new]


def test_so_do_rows_whose_keys_are_looked_for_first(generating: SharedTable) -> None:
    dest = generating.dest

    def resolve(found: list[int]) -> Segment:
        assert found == [2]
        return merge(dest, [(0, 2, 3, "c", None, False)], generated=DOUBLE, source=ONE)

    generating.batch(ONE, [probe(dest, [2, 9], resolve, generated=DOUBLE)], 30)
    assert generating.computed(ONE) == [DOUBLED[0], (3, "c", None, 6, f"c-{ONE}")]
    assert generating.computed(TWO) == TRIPLED


def test_behind_a_truncate_rows_are_generated_anew(generating: SharedTable) -> None:
    dest = generating.dest
    emptied = append(dest, [(4, "d", None)], truncate=True, generated=TRIPLE)
    changed = merge(dest, [(0, 4, 5, "e", None, False)], generated=TRIPLE)
    generating.batch(TWO, [emptied, changed], 30)
    assert generating.computed(TWO) == [(5, "e", None, 15, f"{TWO}e")]
    assert generating.computed(ONE) == DOUBLED


def test_a_copy_that_main_has_outrun_brings_what_it_generated(generating: SharedTable) -> None:
    dest, ident = generating.dest, generating.ident
    copy = generating.branch()
    rows = append(dest, [(3, "c", BIG)], truncate=True, generated=DOUBLE, source=ONE)
    dest.write(ident, copy, [rows], of(ONE, 30))
    generating.batch(TWO, [append(dest, [(4, "d", None)], generated=TRIPLE)], 25)
    moved = generating.branch()
    whole = Segment((), truncate=True, source=ONE, from_branch=copy)
    dest.write(ident, moved, [whole], of(ONE, 30))
    dest.publish(ident, moved, of(ONE, 30))
    assert generating.computed(ONE) == [(3, "c", BIG, 6, f"c{BIG}{ONE}")]
    assert generating.computed(TWO) == [*TRIPLED, (4, "d", None, 12, f"{TWO}d")]
    assert generating.computed(THREE) == UNTOUCHED
