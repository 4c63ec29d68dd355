"""Inserts of transactions in progress are in files at the commit, and all else is as without."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from config.guc import Settings
from tests.workers.apply.test_follow_schema import WIDER, A, Publisher, shape, with_default
from tests.workers.file_lake import FileLake
from tests.workers.stream.test_in_progress import receive
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import commit, part, relation, row
from workers.apply.copy_again import CopyAgain
from workers.apply.follow_schema import SchemaFollower
from workers.apply.parallel import apply_threads, pieces
from workers.apply.parallel.apply_threads import ParallelApply
from workers.apply.parallel.file_notes import FOLDER, FileNotes
from workers.changes.by_table import frame_inside
from workers.lake.table import LakeIdent, Stamp
from workers.proto import encode
from workers.proto.messages import (
    Begin,
    ColumnStatus,
    Commit,
    Delete,
    Insert,
    Message,
    StreamAbort,
    Truncate,
    TupleColumn,
    Update,
)
from workers.stream import spool as spool_module
from workers.stream.spool import Spool
from workers.tables.rename_watch import RenameWatch

RELATIONS = (relation(1, "a", "id", "v"), relation(2, "b", "id", "v"))
NULL = TupleColumn(ColumnStatus.NULL)
LEAST, MOST = 300, 2000


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply_threads, "PARALLEL_LEAST_BYTES", LEAST)
    monkeypatch.setattr(apply_threads, "PARALLEL_MOST_BYTES", MOST)
    monkeypatch.setattr(spool_module, "SEGMENT_FIRST_BYTES", 0)
    monkeypatch.setattr(pieces, "PARALLEL_WAIT_SECONDS", 0)


@dataclass
class World:
    """A worker with its spool; ``threads`` are 0 for ``streaming = on``.

    With a ``publisher`` the worker follows columns.
    """

    folder: Path
    threads: int = 2
    world: Subscribed = field(default_factory=Subscribed)
    publisher: Publisher | None = None
    reports: list[Any] = field(default_factory=list)
    written: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.dest = FileLake(self.world.lake, self.world.sub.oid)
        self.applier = self.world.worker(self.dest)
        if self.publisher is not None:
            self._follow_columns(self.publisher)
        self.spool = Spool(self.folder / "spool", memory_limit=1 << 20, segment_bytes=1 << 20)
        self.parallel = ParallelApply(
            self.applier,
            self.spool,
            self.dest,
            FileNotes(self.folder, 1),
            most=lambda: self.threads,
            report=lambda **told: self.reports.append(told["parallel"]),
            wake=self.written.set,
        )

    def _follow_columns(self, publisher: Publisher) -> None:
        store, writer, given = self.world.store, self.applier.writer, Settings()
        copies, ask = CopyAgain(store, publisher.size), publisher.ask
        self.applier.schema = SchemaFollower(store, writer, ask, lambda: given, copies)

    def take(self, *messages: bytes) -> None:
        """Receive, and take a turn; then apply what has committed."""
        receive(self.spool, messages)
        self.parallel.turn()
        while (batch := self.spool.take(1 << 20, 1000)) is not None:
            self.applier.apply_batch(batch)
            self.parallel.end_batch()
            self.parallel.turn()

    def take_and_write(self, *messages: bytes) -> None:
        """The same, and wait for the thread."""
        self.written.clear()
        self.take(*messages)
        assert self.written.wait(30), "no slice was written"
        self.parallel.turn()

    def notes(self) -> list[str]:
        folder = self.folder / FOLDER
        return sorted(each.name for each in folder.iterdir()) if folder.exists() else []

    def rows(self) -> list[list[tuple[Any, ...]]]:
        return [self.world.rows(name) for name in "ab"]

    def close(self) -> None:
        self.parallel.close()
        self.spool.close()
        self.world.close()


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with closing(World(tmp_path)) as world:
        yield world


def inserts(first: int, count: int, relid: int = 1) -> list[Message]:
    return [Insert(relid, row(str(key), str(key))) for key in range(first, first + count)]


def ordinary(xid: int, at: int, *changes: Message) -> list[bytes]:
    whole = [Begin(LSN(at - 1), 0, xid), *RELATIONS, *changes, Commit(LSN(at - 1), LSN(at), 0)]
    return [encode.message(each) for each in whole]


def pairs(*keys: range) -> list[tuple[int, int]]:
    return sorted((key, key) for each in keys for key in each)


def test_rows_are_in_files_before_the_commit_and_seen_behind_it(here: World) -> None:
    here.take_and_write(*part(7, *RELATIONS, *inserts(1, 20), first=True))
    assert len(here.dest.loose) == 1
    assert here.rows() == [[], []]
    assert len(here.notes()) == 1
    [thread] = here.reports[-1]
    assert thread["xid"] == 7
    assert os.path.exists(f"/proc/{os.getpid()}/task/{thread['pid']}")
    here.take(*ordinary(8, 100, *inserts(50, 2), *inserts(1, 1, 2)))
    assert here.rows() == [pairs(range(50, 52)), pairs(range(1, 2))]
    here.take_and_write(*part(7, *inserts(21, 20)))
    here.take(*part(7, *inserts(41, 2)), commit(7, 200))
    assert here.rows() == [pairs(range(1, 43), range(50, 52)), pairs(range(1, 2))]
    assert len(here.dest.committed) == 2
    assert (here.dest.loose, here.notes(), here.reports[-1]) == (set(), [], [])
    assert here.world.position() == LSN(200)


def test_batches_of_others_come_first(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice waits beside batches; rows that still wait are applied at the commit."""
    monkeypatch.setattr(pieces, "PARALLEL_WAIT_SECONDS", 1e9)
    here.take(*ordinary(8, 100, *inserts(50, 2)))
    here.take(*part(7, *RELATIONS, *inserts(1, 20), first=True))
    assert here.parallel._open[1].job is None
    here.take(commit(7, 200))
    assert here.rows()[0] == pairs(range(1, 21), range(50, 52))


def test_records_of_files_are_not_read_again(here: World) -> None:
    """What was received is damaged behind the look of the thread, and nobody meets the damage."""
    here.take_and_write(*part(7, *RELATIONS, *inserts(1, 20), *inserts(1, 5, 2), first=True))
    (running,) = here.spool.running()
    segment = next(iter(here.spool._in_progress._open.values())).segment
    segment.buf[segment.used - running.size : segment.used] = 255
    here.take(*part(7, *inserts(21, 2)), commit(7, 200))
    assert here.rows() == [pairs(range(1, 23)), pairs(range(1, 6))]
    assert here.applier.work_of_part["rows"] == {"insert": 27}


def test_records_of_written_files_are_not_kept_in_memory(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the memory would grow with the transaction: the files wait for the commit."""
    given: list[weakref.ref[Any]] = []

    def reading(buf: Any, *more: Any) -> Any:
        given.append(weakref.ref(buf))
        return frame_inside(buf, *more)

    monkeypatch.setattr(apply_threads, "frame_inside", reading)
    here.take_and_write(*part(7, *RELATIONS, *inserts(1, 20), first=True))
    here.take_and_write(*part(7, *inserts(21, 20)))
    assert [each() for each in given] == [None, None]


def test_rows_under_another_name_are_in_the_files_of_the_table(here: World) -> None:
    """Table a, oid 1, has another name by now; the change has the oid."""
    store, rel = here.world.store, here.world.rel("a")
    store.update_rel(rel.srsubid, rel.srrelid, remote_relid=1)
    here.applier.read_rels()
    here.applier.renames = RenameWatch(store, lambda _: {}, lambda _: {}, lambda: None, Settings)
    here.take_and_write(*part(7, relation(1, "now", "id", "v"), *inserts(1, 20), first=True))
    assert len(here.dest.loose) == 1
    here.take(commit(7, 200))
    assert here.rows()[0] == pairs(range(1, 21))
    assert (here.dest.loose, len(here.dest.committed)) == (set(), 1)


def test_a_transaction_that_is_rolled_back_leaves_no_file(here: World) -> None:
    here.take_and_write(*part(7, *RELATIONS, *inserts(1, 20), first=True))
    assert here.dest.loose
    here.take(encode.message(StreamAbort(7, 7)))
    assert (here.dest.files, here.notes(), here.rows()) == ({}, [], [[], []])


def test_a_subtransaction_that_is_rolled_back_is_not_in_a_file(here: World) -> None:
    here.take_and_write(*part(7, *RELATIONS, *inserts(1, 20), first=True))
    here.take_and_write(*part(7, *inserts(100, 60), sub=9))
    assert len(here.dest.loose) == 2
    here.take(encode.message(StreamAbort(7, 9)))
    assert len(here.dest.loose) == 1
    here.take_and_write(*part(7, *RELATIONS, *inserts(21, 20)))
    here.take(commit(7, 200))
    assert here.rows()[0] == pairs(range(1, 41))
    assert here.dest.loose == set()
    assert len(here.dest.committed) == 2


def test_a_later_change_finds_the_rows_of_the_files(here: World) -> None:
    here.take_and_write(*part(7, *RELATIONS, *inserts(1, 20), first=True))
    changes = Delete(1, "K", (*row("3"), NULL)), Update(1, None, None, row("4", "40"))
    here.take(*part(7, *changes, *inserts(3, 1)), commit(7, 200))
    assert here.rows()[0] == sorted([*pairs(range(1, 4), range(5, 21)), (4, 40)])
    assert here.dest.committed


def test_what_needs_a_look_up_waits_for_the_commit(here: World) -> None:
    here.world.distrust("a")
    here.applier.read_rels()
    here.take(*part(7, *RELATIONS, *inserts(1, 20), first=True))
    assert (here.dest.files, here.notes()) == ({}, [])
    here.take(commit(7, 200))
    assert here.rows()[0] == pairs(range(1, 21))


def test_doubt_that_comes_meanwhile_is_heard_at_the_commit(here: World) -> None:
    """Another writer's row has a key of the transaction: the row is looked up, and the conflict."""
    here.take_and_write(*part(7, *RELATIONS, *inserts(1, 20), first=True))
    loose = here.dest.loose
    here.world.put("a", (3, 0))
    here.world.distrust("a")
    here.applier.read_rels()
    here.written.clear()
    receive(here.spool, [commit(7, 200)])
    batch = here.spool.take(1 << 20, 1000)
    assert batch is not None
    with pytest.raises(ReplicationError) as raised:
        here.applier.apply_batch(batch)
    assert raised.value.code == "23505"
    assert here.rows()[0] == [(3, 0)]
    here.parallel.close()
    assert loose.isdisjoint(here.dest.files)


def test_an_error_of_the_lake_waits_for_the_commit(here: World) -> None:
    here.dest.error = ReplicationError("no space left", sqlstate="53100")
    here.take_and_write(*part(7, *RELATIONS, *inserts(1, 20), first=True))
    here.dest.error = None
    here.take(*part(7, *inserts(21, 20)))
    assert here.dest.files == {}, "given up"
    here.take(commit(7, 200))
    assert here.rows()[0] == pairs(range(1, 41))
    assert here.notes() == []


def test_a_transaction_beyond_the_threads_is_applied_at_its_commit(here: World) -> None:
    here.threads = 1
    here.take_and_write(*part(7, *RELATIONS, *inserts(1, 20), first=True))
    here.take(*part(8, *RELATIONS, *inserts(101, 20), first=True))
    assert [each["xid"] for each in here.reports[-1]] == [7]
    here.take(commit(8, 100), commit(7, 200))
    assert here.rows()[0] == pairs(range(1, 21), range(101, 121))
    here.threads = 0
    here.take(*part(9, *RELATIONS, *inserts(201, 20), first=True))
    assert here.reports[-1] == []


def test_old_files_are_not_used(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    here.take_and_write(*part(7, *RELATIONS, *inserts(1, 20), first=True))
    monkeypatch.setattr(apply_threads, "PARALLEL_FILE_SECONDS", -1.0)
    loose = here.dest.loose
    here.take(commit(7, 200))
    assert here.rows()[0] == pairs(range(1, 21))
    assert loose.isdisjoint(here.dest.files)


def test_the_end_of_the_worker_leaves_no_file(here: World) -> None:
    here.take_and_write(*part(7, *RELATIONS, *inserts(1, 20), first=True))
    here.parallel.close()
    assert (here.dest.files, here.notes()) == ({}, [])


def test_another_writer_beside_the_commit_costs_the_files_alone(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``main`` moves between branch and publication: the transaction is applied once more."""
    here.take_and_write(*part(7, *RELATIONS, *inserts(1, 20), first=True))
    publish = here.dest.publish
    moved: list[int] = []

    def moving(ident: LakeIdent, branch: str, stamp: Stamp) -> int | None:
        if not moved:
            moved.append(1)
            here.world.put("a", (1000, 0), ours=True)
        return publish(ident, branch, stamp)

    monkeypatch.setattr(here.dest, "publish", moving)
    here.take(commit(7, 200))
    assert here.rows()[0] == [*pairs(range(1, 21)), (1000, 0)]
    assert here.notes() == []


@pytest.mark.parametrize("has_default", [True, False])
def test_a_table_that_is_altered_behind_its_files(tmp_path: Path, has_default: bool) -> None:
    """The files are given up, and the lake table follows as with ``on``: no copy is needed."""
    publisher = Publisher()
    with closing(World(tmp_path, publisher=publisher)) as here:
        here.take(*ordinary(6, 50, *inserts(100, 1)))
        here.take_and_write(*part(7, A, *inserts(1, 20), first=True))
        assert len(here.dest.loose) == 1
        publisher.shape = with_default() if has_default else shape("id", "v", "w")
        here.take(*part(7, WIDER, Insert(1, row("21", "21", "210")), sub=9))
        assert here.dest.loose == set()
        here.take(*part(7, *_wide(22, 20)))
        assert here.dest.loose == set()
        here.take(commit(7, 200))
        value = 7 if has_default else None
        old = [(key, key, value) for key in (*range(1, 21), 100)]
        assert here.rows()[0] == sorted([*old, *((n, n, 10 * n) for n in range(21, 42))])
        assert not here.world.rel("a").recopy
        assert (here.dest.loose, here.notes()) == (set(), [])


def test_a_table_that_was_altered_in_a_rolled_back_part(tmp_path: Path) -> None:
    """The next look comes when the part is gone: the files stay."""
    with closing(World(tmp_path, publisher=Publisher())) as here:
        here.take_and_write(*part(7, A, *inserts(1, 20), first=True))
        altered = part(7, WIDER, *_wide(22, 3), sub=9)
        here.take(*altered, encode.message(StreamAbort(7, 9)))
        assert len(here.dest.loose) == 1
        here.take(*part(7, A, *inserts(21, 2)), commit(7, 200))
        assert here.rows()[0] == pairs(range(1, 23))
        assert (here.dest.loose, len(here.dest.committed)) == (set(), 1)


def _wide(first: int, count: int) -> list[Message]:
    keys = range(first, first + count)
    return [Insert(1, row(str(key), str(key), str(10 * key))) for key in keys]


def test_values_of_an_excluded_column_are_in_no_file(tmp_path: Path) -> None:
    """Columns that were altered before the first row have no files before the commit."""
    world, publisher = Subscribed(), Publisher()
    world.declare("a", excluded=("ssn",))
    publisher.shape = shape("id", "ssn", "v")
    message = relation(1, "a", "id", "ssn", "v")
    with closing(World(tmp_path, world=world, publisher=publisher)) as here:
        here.take(*part(7, message, *_wide(1, 20), first=True))
        assert here.notes() == [], "the columns were not looked at yet"
        here.take(commit(7, 200))
        here.take_and_write(*part(8, message, *_wide(21, 20), first=True))
        [loose] = here.dest.loose
        values = [column.to_pylist() for column in here.dest.files[loose][1].columns]
        assert values == [list(range(21, 41)), list(range(210, 410, 10))]
        here.take(commit(8, 300))
        assert here.rows()[0] == [(key, 10 * key) for key in range(1, 41)]
        publisher.shape = shape("id", "v", "ssn")
        here.take(*part(9, relation(1, "a", "id", "v", "ssn"), *_wide(41, 20), first=True))
        assert here.notes() == [], "v is the column that was ssn"
        with pytest.raises(ReplicationError, match="excluded column"):
            here.take(commit(9, 400))
        assert here.rows()[0] == [(key, 10 * key) for key in range(1, 41)]


@dataclass
class Session:
    """A transaction on the publisher, and what it may still change or undo."""

    xid: int = 0
    subs: list[int] = field(default_factory=list)
    keys: list[list[tuple[int, int]]] = field(default_factory=lambda: [[]])


STEPS = st.tuples(
    st.integers(0, 1),
    st.sampled_from(
        ["insert", "insert", "insert", "both", "update", "delete", "truncate", "savepoint",
         "roll back", "roll back", "commit", "abort", "ordinary", "wait"]
    ),
    st.integers(1, 25),
)  # fmt: skip


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(STEPS, min_size=5, max_size=30))
def test_rows_are_those_of_streaming_on(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str, int]]
) -> None:
    """Two transactions in turns with savepoints, changes and TRUNCATEs, and ordinary ones."""
    folder = tmp_path_factory.mktemp("worlds")
    with (
        pytest.MonkeyPatch.context() as patch,
        closing(World(folder / "on", threads=0)) as on,
        closing(World(folder / "parallel")) as parallel,
    ):
        patch.setattr(apply_threads, "PARALLEL_LEAST_BYTES", 150)
        patch.setattr(apply_threads, "PARALLEL_MOST_BYTES", 250)
        sender = _Sender()
        for step in [*steps, (0, "commit", 0), (1, "commit", 0)]:
            messages = sender.step(*step)
            if step[1] == "wait":
                parallel.written.wait(0.02)
                parallel.written.clear()
            for each in (on, parallel):
                each.take(*messages)
            assert parallel.rows() == on.rows()
        assert parallel.dest.loose == set()
        assert parallel.notes() == []
        assert parallel.world.position() == on.world.position()


class _Sender:
    def __init__(self) -> None:
        self.sessions = [Session(), Session()]
        self.xid, self.key, self.at = 10, 0, 100

    def step(self, number: int, what: str, count: int) -> list[bytes]:
        session = self.sessions[number]
        if what == "ordinary":
            self.at += 100
            return ordinary(self._next_xid(), self.at, *self._new(count, 1), *self._new(2, 2))
        if what in ("commit", "abort"):
            return self._end(number, session, what)
        if what == "savepoint" and session.xid:
            session.subs.append(self._next_xid())
            session.keys.append([])
        if what == "roll back" and session.subs:
            sub, keys = session.subs.pop(), session.keys.pop()
            return [encode.message(StreamAbort(session.xid, sub))] if keys else []
        changes = self._changes(session, what, count)
        if not changes:
            return []
        first = session.xid == 0
        session.xid = session.xid or self._next_xid()
        inner = session.subs[-1] if session.subs else 0
        return part(session.xid, *RELATIONS, *changes, first=first, sub=inner)

    def _changes(self, session: Session, what: str, count: int) -> list[Message]:
        mine = session.keys[-1]
        if what in ("insert", "both"):
            made = self._new(count, 1)
            mine += [(1, self.key)]
            return made + (self._new(count, 2) if what == "both" else [])
        if not mine:
            return []
        relid, key = mine[-1]
        if what == "update":
            return [Update(relid, None, None, row(str(key), str(-key)))]
        if what == "delete" and len(mine) > 1:
            mine.pop()
            return [Delete(relid, "K", (*row(str(key)), NULL))]
        if what == "truncate" and count < 3:
            return [Truncate(cascade=False, restart_seqs=False, relids=(2,))]
        return []

    def _end(self, number: int, session: Session, what: str) -> list[bytes]:
        self.sessions[number] = Session()
        if not session.xid:
            return []
        if what == "abort":
            return [encode.message(StreamAbort(session.xid, session.xid))]
        self.at += 100
        return [commit(session.xid, self.at)]

    def _new(self, count: int, relid: int) -> list[Message]:
        first = self.key + 1
        self.key += count
        return inserts(first, count, relid)

    def _next_xid(self) -> int:
        self.xid += 1
        return self.xid
