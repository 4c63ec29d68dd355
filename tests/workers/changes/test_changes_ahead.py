"""Which changes are staged before the commit, and that the rows are those of ``streaming = on``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog.errcodes import ReplicationError
from catalog.pg_subscription import TableOptions
from tests.workers.apply.parallel.test_apply_threads import (
    NULL,
    RELATIONS,
    World,
    ordinary,
)
from tests.workers.changes.test_segments import COLUMNS, IDENT, STAMP, A
from tests.workers.file_lake import FileLake
from tests.workers.transactions import batch, commit, part, row
from workers.apply.parallel import apply_threads, pieces, refused_tables
from workers.changes import changes_ahead
from workers.changes.by_table import frame_batch
from workers.changes.changes_ahead import NoFiles, build_ahead
from workers.changes.relation_map import LogicalRepRelMap
from workers.changes.table_work import TableWork
from workers.lake.memory.destination import MemoryDestination
from workers.lake.memory.lake import MemoryLake
from workers.lake.segment import DELETE_LINE, INSERT_LINE, UPDATE_LINE
from workers.lake.table import LakeColumn
from workers.proto import encode
from workers.proto.messages import (
    ColumnStatus,
    Delete,
    Insert,
    Message,
    StreamAbort,
    TupleColumn,
    Update,
)
from workers.stream import spool as spool_module

UNSENT = TupleColumn(ColumnStatus.UNCHANGED)


def update(key: int, v: int) -> Message:
    return Update(1, None, None, row(str(key), str(v)))


def delete(key: int) -> Message:
    return Delete(1, "K", (*row(str(key)), NULL))


def insert(key: int, v: int) -> Message:
    return Insert(1, row(str(key), str(v)))


def built(
    *changes: Message,
    columns: tuple[LakeColumn, ...] = COLUMNS,
    takes_deletes: bool = True,
    options: TableOptions | None = None,
) -> tuple[TableWork | NoFiles, FileLake]:
    dest = FileLake(MemoryLake(), 1)
    dest.takes_deletes = takes_deletes
    table = dest.create_table(IDENT, columns, owner="u", relid=1, stamp=STAMP)
    taken = batch([A, *changes])
    framed = frame_batch(taken, LogicalRepRelMap())
    (run,) = framed.runs_of_all(("public", "a"))
    return build_ahead(run, table, options or TableOptions(), dest, file_id="id"), dest


THREE = [update(key, 1) for key in (1, 2, 3)]


def test_the_last_row_of_each_key_is_in_the_file() -> None:
    changes = [*THREE, delete(7), insert(8, 5), update(1, 10), delete(2), update(8, 6)]
    work, dest = built(*changes)
    assert isinstance(work, TableWork)
    [segment] = work.segments
    [ahead] = segment.ahead
    assert ahead.keys.table is not None
    lines = [tuple(line.values()) for line in ahead.keys.table.to_pylist()]
    assert sorted(lines[:-1]) == [
        (UPDATE_LINE, 1), (UPDATE_LINE, 3), (DELETE_LINE, 2), (DELETE_LINE, 7)
    ]  # fmt: skip
    assert lines[-1] == (INSERT_LINE, 8)
    [(_, rows)] = dest.files.values()
    found = [tuple(each.values()) for each in rows.to_pylist()]
    keys = [key for op, key in lines if op != DELETE_LINE]
    assert found == [(key, {1: 10, 3: 1, 8: 6}[key]) for key in keys]
    assert next(iter(dest.files)).startswith("id/")
    work.discard()
    assert dest.files == {}


WAITING: dict[str, list[Message]] = {
    "an unsent value": [*THREE, Update(1, None, None, (*row("4"), UNSENT))],
    "another key": [*THREE, Update(1, "K", (*row("4"), NULL), row("5", "1"))],
    "a key of a second row": [*THREE, insert(4, 1), insert(4, 2)],
}
FEW: dict[str, list[Message]] = {
    "no new row": [delete(key) for key in range(6)],
    "few rows": [update(1, 1), delete(2)],
    "few keys": [update(n % 2, n) for n in range(6)],
    "new rows that are deleted": [*(insert(key, 1) for key in (8, 9)), delete(8), delete(9)],
}


@pytest.mark.parametrize("what", WAITING)
def test_changes_that_wait_for_the_commit(what: str) -> None:
    work, dest = built(*WAITING[what])
    assert (work, dest.files, dest.staged) == (NoFiles.WAIT, {}, 0)


@pytest.mark.parametrize("what", FEW)
def test_few_new_rows_say_nothing_of_the_next_part(what: str) -> None:
    work, dest = built(*FEW[what])
    assert (work, dest.files, dest.staged) == (NoFiles.FEW, {}, 0)


def test_many_deletes_without_a_new_row_have_their_keys_staged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work, dest = built(*(delete(key) for key in range(8)))
    assert isinstance(work, TableWork)
    [ahead] = work.segments[0].ahead
    assert ahead.keys.table is not None
    assert set(ahead.keys.table["b0"].to_pylist()) == set(range(8))
    assert set(ahead.keys.table["op"].to_pylist()) == {DELETE_LINE}
    assert (ahead.rows.rows, dest.files) == (0, {})
    work.discard()
    assert dest.staged == 0
    work, dest = built(*(delete(key) for key in range(8)), takes_deletes=False)
    assert (work, dest.staged) == (NoFiles.WAIT, 0)
    monkeypatch.setattr(FileLake, "stage", MemoryDestination.stage)  # as where Spark writes
    work, dest = built(*(delete(key) for key in range(8)))
    assert (work, dest.staged) == (NoFiles.WAIT, 0)


def test_tables_whose_changes_wait_for_the_commit() -> None:
    for more in (
        {"takes_deletes": False},
        {"columns": (*COLUMNS, LakeColumn("ours", pa.int32()))},
        {"columns": (LakeColumn("id", pa.string()), COLUMNS[1])},
        {"options": TableOptions(keys=(("v",),))},
        {"options": TableOptions(defaults=(("w", "1"),))},
    ):
        given: Any = more
        work, dest = built(*THREE, **given)
        assert (work, dest.files) == (NoFiles.WAIT, {}), more


# -- the rows -------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply_threads, "PARALLEL_LEAST_BYTES", 150)
    monkeypatch.setattr(apply_threads, "PARALLEL_MOST_BYTES", 400)
    monkeypatch.setattr(pieces, "PARALLEL_WAIT_SECONDS", 0)
    monkeypatch.setattr(spool_module, "SEGMENT_FIRST_BYTES", 0)
    monkeypatch.setattr(changes_ahead, "DELETES_AHEAD_ROWS", 8)


def test_changes_are_in_files_and_the_commit_finds_the_rows(tmp_path: Path) -> None:
    """Row 3 is deleted, and row 30 comes, behind the file and in front of the commit."""
    with closing(World(tmp_path)) as here:
        here.take(*ordinary(6, 50, *(insert(key, 0) for key in range(1, 11))))
        changes = [update(key, 1) for key in (*range(1, 11), 30, 99)]
        here.take_and_write(*part(7, *RELATIONS, *changes, first=True))
        assert len(here.dest.loose) == 1
        here.take(*ordinary(8, 100, delete(3), insert(30, 0), update(4, 7)))
        here.take_and_write(*part(7, *(update(key, 2) for key in range(1, 12)), delete(5)))
        here.take(*part(7, update(6, 3)), commit(7, 200))
        twice = dict.fromkeys((1, 2, 4, 7, 8, 9, 10), 2) | {6: 3, 30: 1}
        assert here.rows()[0] == sorted(twice.items())
        assert (here.dest.loose, len(here.dest.committed)) == (set(), 3)
        assert here.applier.work_of_part["rows"] == {"update": 24, "delete": 1}


def test_a_table_whose_changes_waited_once_is_not_tried_again(tmp_path: Path) -> None:
    with closing(World(tmp_path)) as here:
        here.take(*ordinary(6, 50, *(insert(key, 0) for key in range(1, 31))))
        here.dest.takes_deletes = False
        changes = [update(key, 1) for key in range(1, 11)]
        here.take_and_write(*part(7, *RELATIONS, *changes, first=True))
        here.dest.takes_deletes = True
        here.take(*part(7, *(update(key, 1) for key in range(11, 21))))
        here.take_and_write(*part(7, *(insert(key, 1) for key in range(41, 51))))
        assert len(here.dest.loose) == 1
        here.take(commit(7, 200))
        after = {key: int(key < 21 or key > 40) for key in (*range(1, 31), *range(41, 51))}
        assert here.rows()[0] == sorted(after.items())


@pytest.mark.parametrize("few", ["no new row", "few keys"])
def test_a_table_with_few_rows_at_first_has_files_later(tmp_path: Path, few: str) -> None:
    """The few are applied at their place: in front of the files of later pieces."""
    with closing(World(tmp_path)) as here:
        here.take(*ordinary(6, 50, *(insert(key, 0) for key in range(10))))
        here.take_and_write(*part(7, *RELATIONS, *FEW[few], first=True))
        assert here.dest.loose == set()
        here.take_and_write(*part(7, *(update(key, 100) for key in range(1, 10))))
        assert len(here.dest.loose) == 1
        here.take_and_write(*part(7, *RELATIONS, *FEW[few]))
        here.take_and_write(*part(7, *(insert(key, 100) for key in range(40, 50))))
        assert len(here.dest.loose) == 2
        here.take(commit(7, 200))
        assert (here.dest.loose, len(here.dest.committed)) == (set(), 3)
        found = dict(here.rows()[0])
        first = {} if few == "no new row" else {0: 4, 1: 5} | dict.fromkeys(range(2, 6), 100)
        assert found == first | dict.fromkeys((*range(6, 10), *range(40, 50)), 100)


def test_pieces_of_deletes_alone_are_applied_in_their_order(tmp_path: Path) -> None:
    """Keys 1 to 10 are deleted, inserted, updated and deleted again; another inserts key 50."""
    with closing(World(tmp_path)) as here:
        here.take(*ordinary(6, 50, *(insert(key, 0) for key in range(1, 31))))
        deletes = [delete(key) for key in range(1, 11)]
        here.take_and_write(*part(7, *RELATIONS, *deletes, first=True))
        here.take(*ordinary(8, 100, delete(11), insert(50, 0), update(12, 7)))
        here.take_and_write(*part(7, *(insert(key, 1) for key in range(1, 11))))
        here.take_and_write(*part(7, *(update(key, 2) for key in range(1, 11))))
        here.take_and_write(*part(7, *(delete(key) for key in range(2, 13))))
        assert len(here.dest.loose) == 2
        here.take(commit(7, 200))
        left = {1: 2, 50: 0} | dict.fromkeys(range(13, 31), 0)
        assert here.rows()[0] == sorted(left.items())
        assert (here.dest.loose, here.dest.staged) == (set(), 0)
        counts = here.applier.work_of_part["rows"]
        assert counts == {"insert": 10, "update": 10, "delete": 21}


def test_a_table_without_searchable_files_is_refused_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred transactions: the first is applied twice, the others have no files."""
    with closing(World(tmp_path)) as here:
        here.dest.is_searchable = False
        here.take(*ordinary(6, 50, *(insert(key, 0) for key in range(1, 11))))
        for n in range(100):
            changes = [update(key, n + 1) for key in range(1, 11)]
            take = here.take if n else here.take_and_write
            take(*part(7 + n, *RELATIONS, *changes, first=True))
            assert (len(here.dest.loose), here.dest.refusals) == ((0, 1) if n else (1, 0))
            here.take(commit(7 + n, 200 + n))
            assert here.rows()[0] == [(key, n + 1) for key in range(1, 11)]
        assert (here.dest.refusals, here.dest.loose) == (1, set())
        here.take_and_write(
            *part(200, *RELATIONS, *(insert(key, 0) for key in range(20, 40)), first=True)
        )
        assert len(here.dest.loose) == 1, "inserts have files as ever"
        here.take(commit(200, 400))
        monkeypatch.setattr(refused_tables, "PARALLEL_REFUSED_SECONDS", 0.0)
        here.take_and_write(*part(201, *RELATIONS, *changes, first=True))
        assert len(here.dest.loose) == 1, "an hour later"


def test_files_of_a_table_that_was_refused_meanwhile_are_not_used(tmp_path: Path) -> None:
    """Two transactions have files, and the table is refused to the first."""
    with closing(World(tmp_path)) as here:
        here.take(*ordinary(6, 50, *(insert(key, 0) for key in range(1, 31))))
        for xid in (7, 8):
            changes = [update(key, xid) for key in range(10 * xid - 69, 10 * xid - 59)]
            here.take_and_write(*part(xid, *RELATIONS, *changes, first=True))
        assert len(here.dest.loose) == 2
        here.dest.is_searchable = False
        here.take(commit(7, 200), commit(8, 300))
        assert (here.dest.refusals, here.dest.loose) == (1, set())
        after = {key: 7 if key < 11 else 8 if key < 21 else 0 for key in range(1, 31)}
        assert dict(here.rows()[0]) == after


@pytest.mark.parametrize("there", ["a key of two rows", "a row with an inserted key"])
def test_files_that_do_not_suffice_are_not_used(tmp_path: Path, there: str) -> None:
    """Rows of another writer: all is as with ``streaming = on``, and no file is left."""
    found = {}
    put = [(3, 0), (3, 1)] if there == "a key of two rows" else [(3, 0), (30, 1)]
    for threads in (0, 2):
        with closing(World(tmp_path / f"{threads}", threads)) as here:
            here.take(*ordinary(6, 50, *(insert(key, 0) for key in range(1, 11))))
            changes = [*(update(key, 1) for key in range(1, 11)), insert(30, 1)]
            if threads:
                here.take_and_write(*part(7, *RELATIONS, *changes, first=True))
                assert len(here.dest.loose) == 1
            else:
                here.take(*part(7, *RELATIONS, *changes, first=True))
            here.world.put("a", *put, ours=True)
            with suppress(ReplicationError):
                here.take(commit(7, 200))
            here.parallel.close()
            assert here.dest.loose == set()
            found[threads] = here.rows(), here.dest.staged
    assert found[2] == found[0]


KEYS = st.integers(1, 12)
ONE = st.tuples(st.sampled_from(["update", "update", "update", "delete", "insert"]), KEYS)
FEW_KEYS = st.tuples(st.just("update"), st.integers(1, 2))
OLD_ROW = st.tuples(st.sampled_from(["move", "unsent"]), KEYS)
STEPS = st.one_of(
    st.tuples(st.just("part"), st.lists(ONE, min_size=3, max_size=12)),
    st.tuples(st.just("part"), st.lists(ONE, min_size=8, max_size=12)),
    st.tuples(st.just("part"), st.lists(FEW_KEYS, min_size=5, max_size=12)),
    st.tuples(st.just("part"), st.lists(st.tuples(st.just("delete"), KEYS), min_size=6)),
    st.tuples(st.just("part"), st.lists(st.one_of(ONE, OLD_ROW), min_size=3, max_size=12)),
    st.tuples(st.just("ordinary"), st.lists(ONE, min_size=1, max_size=5)),
    st.tuples(st.just("savepoint"), st.lists(ONE, min_size=3, max_size=12)),
    st.tuples(st.just("roll back"), st.just([])),
    st.tuples(st.just("wait"), st.just([])),
    st.tuples(st.just("commit"), st.just([])),
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(STEPS, min_size=4, max_size=16))
def test_rows_are_those_of_streaming_on(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, list[tuple[str, int]]]]
) -> None:
    """A transaction with savepoints changes some keys, beside ordinary ones of the same keys.

    The publisher inserts no key that it has, and the order of the commits decides: an UPDATE or a
    DELETE may find no row any more.
    """
    folder = tmp_path_factory.mktemp("worlds")
    with (
        closing(World(folder / "on", threads=0)) as on,
        closing(World(folder / "parallel")) as parallel,
    ):
        sender = _Sender()
        for what, changes in [*steps, ("commit", [])]:
            if what == "wait":
                parallel.written.wait(0.02)
                parallel.written.clear()
            messages = sender.step(what, changes)
            for each in (on, parallel):
                each.take(*messages)
            assert parallel.rows() == on.rows()
        assert (parallel.dest.loose, parallel.notes()) == (set(), [])
        assert parallel.world.position() == on.world.position()


class _Sender:
    """Keys up to 12 are of ordinary transactions; the large one inserts keys of its own, too."""

    def __init__(self) -> None:
        self.xid, self.sub, self.next, self.at, self.v = 0, 0, 10, 100, 0
        self.held: set[int] = set()
        self.kept: set[int] = set()
        self.inside: list[set[int]] = []

    def step(self, what: str, changes: Sequence[tuple[str, int]]) -> list[bytes]:
        if what == "ordinary":
            self.at += 100
            return ordinary(self._new_xid(), self.at, *self._changes(changes, self.held, 0))
        if what == "commit" and self.xid:
            self.at += 100
            xid, self.xid, self.sub = self.xid, 0, 0
            self.kept = self.inside.pop()
            return [commit(xid, self.at)]
        if what == "roll back" and self.sub:
            sub, self.sub = self.sub, 0
            self.inside.pop()
            return [encode.message(StreamAbort(self.xid, sub))]
        if what not in ("part", "savepoint"):
            return []
        first = not self.xid
        if first:
            self.xid, self.inside = self._new_xid(), [set(self.kept)]
        if what == "savepoint" and not self.sub:
            self.sub = self._new_xid()
            self.inside.append(set(self.inside[-1]))
        made = self._changes(changes, self.inside[-1], 100)
        return part(self.xid, *RELATIONS, *made, first=first, sub=self.sub)

    def _changes(
        self, changes: Sequence[tuple[str, int]], held: set[int], own: int
    ) -> list[Message]:
        """``own`` is added to inserted keys, and to the changes of such."""
        found: list[Message] = []
        for what, key in changes:
            self.v += 1
            mine = key + own if key + own in held else key
            if what == "insert" and key + own not in held:
                held.add(key + own)
                found.append(insert(key + own, self.v))
            elif what == "delete":
                held.discard(mine)
                found.append(delete(mine))
            elif what == "move":  # to a key that no row ever has
                held.discard(mine)
                found.append(Update(1, "K", (*row(str(mine)), NULL), row(str(self.v + 1000), "1")))
            elif what == "unsent":
                found.append(Update(1, None, None, (*row(str(mine)), UNSENT)))
            else:
                found.append(update(mine, self.v))
        return found

    def _new_xid(self) -> int:
        self.next += 1
        return self.next
