"""Which commits and publications read the table first; no server."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from catalog.errcodes import InternalError, IoError, ReplicationError, SerializationFailure
from catalog.pg_lsn import LSN
from config.limits import LOADED_AT_ONCE_TABLES, LOADED_TABLE_SECONDS
from tests.workers.lake.api import one_table
from tests.workers.lake.api.one_table import BATCH, BEFORE, BRANCH, UNKNOWN, Answer, OneTable
from workers.lake.api import loaded_tables, snapshot_commits
from workers.lake.api.held_commits import HeldCommit
from workers.lake.api.loaded_tables import LoadedTables
from workers.lake.api.move_main import Seen
from workers.lake.interfaces.table_api import FileChange, FileTotals
from workers.lake.metadata.snapshots import stamp_properties
from workers.lake.publication import Publication
from workers.lake.refusals import changed_meanwhile
from workers.lake.staged_rows import LayoutId
from workers.lake.table import MAIN, LakeIdent, Stamp

T = LakeIdent("public", "t")
TOTALS = FileTotals(0, 0, 1, None)
CHANGE = FileChange(LayoutId("uuid", 0, 0, 2))


@dataclass
class Catalog:
    """Counts what is loaded; ``errors`` are raised by the commits, one after the other."""

    loaded: int = 0
    errors: list[Exception | None] = field(default_factory=list)
    used: list[int] = field(default_factory=list)
    answers_with_state: bool = True

    def load(self, _ident: Any) -> int:
        self.loaded += 1
        return self.loaded

    def commit(self, _api: Any, table: int, *_of: Any) -> FileTotals:
        self.used.append(table)
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        return TOTALS


@pytest.fixture
def catalog(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Catalog()
    monkeypatch.setattr(loaded_tables, "commit_files", made.commit)
    return made


def test_a_commit_uses_the_table_of_the_commit_before_for_a_while(catalog: Any) -> None:
    now = [100.0]
    tables = LoadedTables(clock=lambda: now[0])
    for _ in range(2):
        assert tables.commit_files(catalog, T, "b", CHANGE) == TOTALS
    now[0] += LOADED_TABLE_SECONDS
    tables.commit_files(catalog, T, "b", CHANGE)
    tables.commit_files(catalog, T, "b", CHANGE)
    assert catalog.used == [1, 1, 2, 2]


def test_a_table_that_changed_since_is_loaded_and_asked_again(catalog: Any) -> None:
    tables = LoadedTables()
    tables.commit_files(catalog, T, "b", CHANGE)
    catalog.errors = [changed_meanwhile(T), None]
    assert tables.commit_files(catalog, T, "b", CHANGE) == TOTALS
    assert catalog.used == [1, 1, 2]
    catalog.errors = [changed_meanwhile(T), changed_meanwhile(T)]
    with pytest.raises(type(changed_meanwhile(T))):
        tables.commit_files(catalog, T, "b", CHANGE)
    tables.commit_files(catalog, T, "b", CHANGE)
    assert catalog.used == [1, 1, 2, 2, 3, 4], "what was refused is not used again"


def test_after_a_failure_the_table_is_loaded(catalog: Any) -> None:
    """Nothing is tried again: the commit may have taken effect."""
    tables = LoadedTables()
    tables.commit_files(catalog, T, "b", CHANGE)
    catalog.errors = [IoError("the store is away")]
    with pytest.raises(IoError):
        tables.commit_files(catalog, T, "b", CHANGE)
    tables.commit_files(catalog, T, "b", CHANGE)
    assert catalog.used == [1, 1, 2]


def test_objects_are_few_and_young(catalog: Any) -> None:
    """Each holds a table's metadata in the lake server's heap."""
    now = [100.0]
    tables = LoadedTables(clock=lambda: now[0])
    for n in range(LOADED_AT_ONCE_TABLES + 5):
        tables.commit_files(catalog, LakeIdent("public", f"t{n}"), "b", CHANGE)
    assert len(tables._loaded) == LOADED_AT_ONCE_TABLES
    now[0] += LOADED_TABLE_SECONDS
    tables.commit_files(catalog, T, "b", CHANGE)
    assert list(tables._loaded) == [T]


def test_a_new_connection_has_tables_of_its_own(catalog: Any) -> None:
    tables = LoadedTables()
    tables.commit_files(catalog, T, "b", CHANGE)
    other: Any = Catalog(loaded=7)
    tables.commit_files(other, T, "b", CHANGE)
    assert catalog.used == [1, 8]


# -- publishing -----------------------------------------------------------------------------------


STAMP = Stamp("pg_1", LSN(20), "e", LSN(0))
PART = Publication(T, "b", STAMP)


@dataclass
class Published(Catalog):
    """Answers with the state of a table whose branch ``b`` ends with ``STAMP`` behind a commit."""

    state: dict[str, Any] = field(default_factory=lambda: metadata(STAMP))
    moved: list[int] = field(default_factory=list)
    refusal: Exception | None = None

    def load(self, ident: Any) -> Any:
        super().load(ident)
        return self

    def operations(self) -> Any:
        return self

    def current(self) -> dict[str, Any]:
        return self.state

    def as_json(self, base: dict[str, Any]) -> dict[str, Any]:
        return base

    def change_of_main(self, ident: LakeIdent, base: dict[str, Any], tip: int) -> Any:
        return ident, base["current-snapshot-id"], tip

    def move_main(self, _operations: Any, base: dict[str, Any], tip: int) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.moved.append(tip)
        self.state = {**base, "current-snapshot-id": tip}


def metadata(stamp: Stamp, main: int = 4) -> dict[str, Any]:
    """``main`` is at ``main``; the branch is at snapshot 5, a child of 4."""
    snapshots = [
        {"snapshot-id": 4, "timestamp-ms": 0, "summary": {}},
        {
            "snapshot-id": 5,
            "parent-snapshot-id": 4,
            "timestamp-ms": 0,
            "summary": stamp_properties(stamp),
        },
    ]
    refs = {"main": {"snapshot-id": main}, "b": {"snapshot-id": 5, "max-ref-age-ms": 1}}
    return {"current-snapshot-id": main, "refs": refs, "snapshots": snapshots}


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Published()
    monkeypatch.setattr(loaded_tables, "commit_files", made.commit)
    return made


def test_main_moves_on_the_state_that_the_commit_brought(published: Any) -> None:
    tables = LoadedTables()
    assert tables.move_main(published, T, "b", STAMP) is None, "nothing was committed yet"
    tables.commit_files(published, T, "b", CHANGE)
    assert tables.move_main(published, T, "b", STAMP) == 5
    assert (published.moved, published.loaded) == ([5], 1)
    assert tables.move_main(published, T, "b", STAMP) is None, "main is there: the table is read"


@pytest.mark.parametrize(
    "state",
    [
        metadata(Stamp("pg_1", LSN(19), "e", LSN(0))),  # a part of the batch only
        {**metadata(STAMP), "refs": {"main": {"snapshot-id": 4}}},  # no branch
        metadata(STAMP) | {"refs": {"main": {"snapshot-id": 4}, "b": {"snapshot-id": 5}}},
    ],
    ids=["another position", "no branch", "another writer's branch"],
)
def test_a_state_that_does_not_suffice_moves_nothing(published: Any, state: Any) -> None:
    published.state = state
    tables = LoadedTables()
    tables.commit_files(published, T, "b", CHANGE)
    assert tables.move_main(published, T, "b", STAMP) is None
    assert published.moved == []


def test_after_a_refused_move_the_table_is_read(published: Any) -> None:
    tables = LoadedTables()
    tables.commit_files(published, T, "b", CHANGE)
    published.refusal = IoError("a fence came first")
    with pytest.raises(IoError):
        tables.move_main(published, T, "b", STAMP)
    assert tables.move_main(published, T, "b", STAMP) is None
    published.refusal = None
    tables.commit_files(published, T, "b", CHANGE)
    assert published.loaded == 2


# -- publishing several tables by one call --------------------------------------------------------


def test_the_first_look_is_at_the_state_that_the_commit_brought(published: Any) -> None:
    tables = LoadedTables()
    tables.commit_files(published, T, "b", CHANGE)
    assert tables.look(published, PART) == Seen(T, 5, (T, 4, 5))
    assert published.loaded == 1
    assert tables.look(published, PART) == Seen(T, 5, (T, 4, 5)), "nothing has moved main"
    assert published.loaded == 2, "behind the call the table is read"
    tables.look(published, PART)
    assert published.loaded == 3, "and behind the next call, too"


def test_the_look_behind_the_call_says_where_main_is(published: Any) -> None:
    tables = LoadedTables()
    tables.commit_files(published, T, "b", CHANGE)
    published.state = metadata(STAMP, main=5)
    assert tables.look(published, PART) == Seen(T, 5, None)
    assert published.loaded == 2, "a state says nothing of main behind a call"
    tables.commit_files(published, T, "b", CHANGE)
    assert published.loaded == 2, "the next commit needs no further look"


def test_a_branch_with_another_position_is_read_before_the_call(published: Any) -> None:
    published.state = metadata(Stamp("pg_1", LSN(19), "e", LSN(0)))
    tables = LoadedTables()
    tables.commit_files(published, T, "b", CHANGE)
    tables.look(published, PART)
    assert published.loaded == 2


# -- held commits ---------------------------------------------------------------------------------


HELD_CHANGE = replace(CHANGE, may_hold=True, summary=stamp_properties(STAMP))
HELD = replace(TOTALS, tip=BATCH, held=True)
HELD_PART = Publication(T, BRANCH, STAMP)
LATER = Stamp("pg_1", LSN(30), "e", LSN(0))
BOTH = {MAIN: BATCH, BRANCH: BATCH}


@dataclass
class Holding(OneTable):
    """A lake that holds commits, unless ``holds`` is false. ``plain`` are the other commits."""

    holds: bool = True
    plain: list[str] = field(default_factory=list)

    def hold(
        self, _api: Any, table: Any, _ident: Any, branch: str, _change: Any, stamp: Stamp
    ) -> tuple[HeldCommit, FileTotals] | None:
        return (one_table.hold(self, table, stamp, branch), HELD) if self.holds else None

    def commit_at_once(self, _api: Any, _table: Any, _ident: Any, branch: str, *_: Any) -> Any:
        self.plain.append(branch)
        return TOTALS


@pytest.fixture
def lake(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Holding()
    monkeypatch.setattr(loaded_tables, "hold_files", made.hold)
    monkeypatch.setattr(loaded_tables, "commit_files", made.commit_at_once)
    monkeypatch.setattr(snapshot_commits, "time", SimpleNamespace(sleep=lambda _seconds: None))
    return made


def holding(lake: Any) -> LoadedTables:
    """Tables with a held commit; ``asked`` is what is asked from now on."""
    tables = LoadedTables()
    assert tables.commit_files(lake, T, BRANCH, HELD_CHANGE) == HELD
    lake.asked.clear()
    return tables


def has_object(lake: Any, tables: LoadedTables) -> bool:
    """Does the next commit need no request before its own?"""
    lake.asked.clear()
    tables.commit_files(lake, T, BRANCH, CHANGE)
    return bool(lake.asked == [])


def test_a_held_commit_is_published_by_one_request(lake: Any) -> None:
    tables = holding(lake)
    assert lake.state.refs == {MAIN: BEFORE, BRANCH: BEFORE}
    assert tables.move_main(lake, T, BRANCH, STAMP) == BATCH
    assert (lake.state.refs, lake.asked) == (BOTH, ["commit"])
    assert tables.held(T, BRANCH) is None
    assert has_object(lake, tables)


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        (CHANGE, True),
        (replace(CHANGE, summary=stamp_properties(STAMP)), True),
        (replace(CHANGE, may_hold=True), True),
        (HELD_CHANGE, False),
    ],
    ids=["neither", "not to be held", "no position", "main is elsewhere"],
)
def test_other_commits_are_made_at_once(lake: Any, change: FileChange, holds: bool) -> None:
    lake.holds = holds
    tables = LoadedTables()
    assert tables.commit_files(lake, T, BRANCH, change) == TOTALS
    assert (lake.plain, tables.held(T, BRANCH)) == ([BRANCH], None)


def test_held_tells_the_snapshot_of_the_branch_alone(lake: Any) -> None:
    tables = holding(lake)
    assert tables.held(T, BRANCH) == BATCH
    assert tables.held(T, "another") is None
    assert tables.held(LakeIdent("public", "u"), BRANCH) is None


@pytest.mark.parametrize("change", [CHANGE, HELD_CHANGE], ids=["at once", "held"])
def test_nothing_is_committed_over_a_held_commit(lake: Any, change: FileChange) -> None:
    """The batch would be lost: the next one would be written on the branch without the batch."""
    tables = holding(lake)
    with pytest.raises(InternalError, match="was not published") as raised:
        tables.commit_files(lake, T, BRANCH, change)
    assert raised.value.code == "XX000"
    assert (lake.plain, lake.lists) == ([], {"list 1"})
    assert tables.move_main(lake, T, BRANCH, STAMP) == BATCH


def test_a_commit_to_another_branch_gives_up_what_is_held(lake: Any) -> None:
    tables = holding(lake)
    assert tables.commit_files(lake, T, "next", CHANGE) == TOTALS
    assert lake.lists == set()
    assert tables.held(T, BRANCH) is None
    assert lake.state.refs == {MAIN: BEFORE, BRANCH: BEFORE}


def test_a_held_commit_of_another_position_is_not_published(lake: Any) -> None:
    tables = holding(lake)
    with pytest.raises(InternalError):
        tables.move_main(lake, T, BRANCH, LATER)
    with pytest.raises(InternalError):
        tables.look(lake, replace(HELD_PART, stamp=LATER))
    assert lake.asked == []


def test_a_held_commit_of_another_branch_is_left_alone(lake: Any) -> None:
    tables = holding(lake)
    assert tables.move_main(lake, T, "another", STAMP) is None
    assert lake.asked == []
    assert tables.held(T, BRANCH) == BATCH


def test_give_up_removes_the_manifests_of_the_branch(lake: Any) -> None:
    tables = holding(lake)
    tables.give_up(T, "another")
    assert lake.lists == {"list 1"}
    for _ in range(2):
        tables.give_up(T, BRANCH)
        assert (lake.lists, tables.held(T, BRANCH)) == (set(), None)


def test_a_branch_that_the_history_tells_of_holds_nothing(lake: Any) -> None:
    """The answer to the publication was lost; the next batch takes the branch."""
    tables = holding(lake)
    tables.published(T, "another")
    assert tables.held(T, BRANCH) == BATCH
    for _ in range(2):
        tables.published(T, BRANCH)
        assert tables.held(T, BRANCH) is None
    assert tables.commit_files(lake, T, BRANCH, CHANGE) == TOTALS
    assert lake.lists == {"list 1"}


def test_forget_leaves_a_held_commit(lake: Any) -> None:
    tables = holding(lake)
    tables.forget(T)
    assert tables.held(T, BRANCH) == BATCH
    assert tables.move_main(lake, T, BRANCH, STAMP) == BATCH
    tables.forget(T)
    assert not has_object(lake, tables)


def test_a_refused_publication_stays_held(lake: Any) -> None:
    """The caller asks the table whether the batch is there, by the snapshot's id."""
    tables = holding(lake)
    lake.add_to_main()
    with pytest.raises(ReplicationError) as refused:
        tables.move_main(lake, T, BRANCH, STAMP)
    assert refused.value.code == "40001"
    assert tables.held(T, BRANCH) == BATCH
    tables.give_up(T, BRANCH)
    assert lake.lists == set()


# -- held commits of several tables by one call ---------------------------------------------------


def called(lake: Any, tables: LoadedTables, *answers: Answer) -> None:
    """The first look, and a call with the answers."""
    lake.answers = list(answers)
    first = tables.look(lake, HELD_PART)
    assert lake.asked == []
    assert (first.snapshot_id, first.may_be_old) == (BATCH, True)
    assert first.change is not None
    if answers and answers[0].error is not None:
        with pytest.raises(Py4JJavaError):
            first.change()
    else:
        first.change()


@pytest.mark.parametrize("answer", [Answer(None, "at once"), Answer(UNKNOWN, "at once")], ids=str)
def test_behind_the_call_the_table_says_that_the_batch_is_there(lake: Any, answer: Answer) -> None:
    tables = holding(lake)
    called(lake, tables, answer)
    assert tables.look(lake, HELD_PART) == Seen(T, BATCH, None)
    assert lake.asked == ["commit", "load"]
    assert (lake.state.refs, lake.lists, tables.held(T, BRANCH)) == (BOTH, {"list 1"}, None)
    assert has_object(lake, tables)


def test_a_batch_that_is_not_there_is_called_for_again(lake: Any) -> None:
    tables = holding(lake)
    called(lake, tables, Answer(UNKNOWN))
    again = tables.look(lake, HELD_PART)
    assert (again.snapshot_id, again.may_be_old) == (BATCH, False)
    assert again.change is not None
    again.change()
    assert tables.look(lake, HELD_PART) == Seen(T, BATCH, None)
    assert (lake.state.refs, lake.lists) == (BOTH, {lake.named_list()})


def test_the_list_of_a_late_call_stays(lake: Any) -> None:
    """The first call takes effect behind the second look, and refuses the second call."""
    tables = holding(lake)
    called(lake, tables, Answer(UNKNOWN, "late"))
    again = tables.look(lake, HELD_PART)
    assert again.change is not None
    with pytest.raises(Py4JJavaError):
        again.change()
    assert tables.look(lake, HELD_PART) == Seen(T, BATCH, None)
    assert (lake.state.refs, lake.named_list()) == (BOTH, "list 1")
    assert lake.lists == {"list 1"}


def test_behind_a_fence_there_is_no_second_call(lake: Any) -> None:
    tables = holding(lake)
    called(lake, tables, Answer(UNKNOWN))
    lake.add_to_main()
    with pytest.raises(ReplicationError, match="main was moved"):
        tables.look(lake, HELD_PART)
    assert tables.held(T, BRANCH) == BATCH


def test_a_commit_behind_the_batch_leaves_main_ahead(lake: Any) -> None:
    tables = holding(lake)
    called(lake, tables, Answer(UNKNOWN, "at once"))
    lake.add_to_main()
    assert tables.look(lake, HELD_PART) == Seen(T, one_table.FENCE, None)
    assert tables.held(T, BRANCH) is None


def test_a_catalog_that_set_the_branch_alone_is_asked_for_main(lake: Any) -> None:
    """Such a catalog breaks its word; the batch is not written again."""
    tables = holding(lake)
    called(lake, tables)
    lake.state = replace(lake.state, refs={MAIN: BEFORE, BRANCH: BATCH})
    again = tables.look(lake, HELD_PART)
    assert (again.snapshot_id, again.may_be_old) == (BATCH, False)
    assert again.change is not None
    assert tables.held(T, BRANCH) == BATCH
    again.change()
    assert (lake.state.refs, lake.named_list()) == (BOTH, "list 1")
    assert tables.look(lake, HELD_PART) == Seen(T, BATCH, None)
    assert tables.held(T, BRANCH) is None


def test_a_catalog_that_set_no_ref_has_not_published(lake: Any) -> None:
    """The snapshot alone shows the batch to nobody."""
    tables = holding(lake)
    called(lake, tables)
    lake.state = replace(lake.state, refs={MAIN: BEFORE, BRANCH: BEFORE})
    with suppress(SerializationFailure):
        assert tables.look(lake, HELD_PART).change is not None
    assert tables.held(T, BRANCH) == BATCH
