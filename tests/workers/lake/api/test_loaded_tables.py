"""Which commits and publications read the table first; no server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from catalog.errcodes import IoError
from catalog.pg_lsn import LSN
from config.limits import LOADED_AT_ONCE_TABLES, LOADED_TABLE_SECONDS
from workers.lake.api import loaded_tables
from workers.lake.api.loaded_tables import LoadedTables
from workers.lake.api.move_main import Seen
from workers.lake.interfaces.table_api import FileChange, FileTotals
from workers.lake.metadata.snapshots import stamp_properties
from workers.lake.publication import Publication
from workers.lake.refusals import changed_meanwhile
from workers.lake.staged_rows import LayoutId
from workers.lake.table import LakeIdent, Stamp

T = LakeIdent("public", "t")
TOTALS = FileTotals(0, 0, 1, None)
CHANGE = FileChange(LayoutId("uuid", 0, 0, 2))


@dataclass
class Catalog:
    """Counts what is loaded; ``errors`` are raised by the commits, one after the other."""

    loaded: int = 0
    errors: list[Exception | None] = field(default_factory=list)
    used: list[int] = field(default_factory=list)

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
