"""A commit by compare-and-set: attempts, wrong refusals, and the manifests that must go."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from catalog.errcodes import ReplicationError
from tests.workers.lake.api.one_table import INVALID, REFUSED, UNKNOWN, java_error
from tests.workers.lake.two_columns import append, stamp
from workers.lake.api import snapshot_commits
from workers.lake.api.snapshot_commits import NewSnapshot
from workers.lake.refusals import changed_meanwhile
from workers.lake.table import LakeIdent

IDENT = LakeIdent("public", "t")


@dataclass
class Catalog:
    """A table's operations, Iceberg's update and the API in one; ``answers`` are the commits'.

    ``known`` says for each attempt whether the state was known.
    """

    answers: Sequence[str | None]
    takes_effect: bool = False
    replaced: str | None = None
    created: str | None = None
    snapshots: dict[int, Any] = field(default_factory=dict)
    removed: list[Any] = field(default_factory=list)
    attempts: int = 0
    commits: list[tuple[int, str]] = field(default_factory=list)
    states: int = 0
    known: list[bool] = field(default_factory=list)

    def operations(self) -> Catalog:
        return self

    @contextlib.contextmanager
    def on_known_state(self, update: Any, table: Any) -> Iterator[None]:
        assert update is self
        assert table in (self, None)
        self.known.append(table is self)
        yield

    def apply(self) -> Any:
        assert len(self.known) == self.attempts + 1, "within on_known_state"
        self.attempts += 1
        self.states += 1
        counts = {"manifests-replaced": self.replaced, "manifests-created": self.created}
        summary = {name: each for name, each in counts.items() if each is not None}
        number = self.attempts
        return SimpleNamespace(
            snapshotId=lambda: number,
            manifestListLocation=lambda: f"list {number}",
            summary=lambda: summary,
        )

    def current(self) -> Any:
        return SimpleNamespace(state=self.states, snapshot=self.snapshots.get)

    def refresh(self) -> Any:
        return self.current()

    def with_snapshot(self, base: Any, made: Any, *refs: str) -> Any:
        return base.state, made, " ".join(refs)

    def commit(self, base: Any, update: Any) -> None:
        state, made, branch = update
        assert state == base.state
        self.commits.append((made.snapshotId(), branch))
        answer = self.answers[len(self.commits) - 1]
        if answer is None or self.takes_effect:
            self.snapshots[made.snapshotId()] = made
        if answer is not None:
            raise java_error(answer)

    def is_cleanable(self, thrown: Any) -> bool:
        return str(thrown.getClass().getName()) != UNKNOWN

    def remove_all_manifests(self, update: Any) -> None:
        self.removed.append("all")
        assert update is self

    def remove_useless_manifests(self, table: Any, update: Any, made: Any, lists: Any) -> None:
        assert table is update
        self.removed.append((made.snapshotId(), lists))


def unchecked(_base: Any) -> None:
    """No state is refused."""


def committed(catalog: Any, check: Callable[[Any], None] = unchecked) -> Any:
    return NewSnapshot(catalog, catalog, catalog, ["b"], check, 2).commit()


def written(catalog: Any, check: Callable[[Any], None] = unchecked) -> NewSnapshot:
    """A snapshot for two refs, written on the known state."""
    new = NewSnapshot(catalog, catalog, catalog, ["b", "main"], check, 2, on_known_state=True)
    new.write()
    return new


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waited: list[float] = []
    monkeypatch.setattr(snapshot_commits, "time", SimpleNamespace(sleep=waited.append))
    return waited


def test_a_commit_is_one_attempt_and_removes_nothing(pauses: list[float]) -> None:
    catalog = Catalog([None], replaced="0")
    assert committed(catalog).snapshotId() == 1
    assert (catalog.commits, catalog.removed, pauses) == ([(1, "b")], [], [])


def test_manifests_that_are_written_again_are_all_in_the_snapshot() -> None:
    """Nothing is looked for: that would be two requests to a store."""
    catalog = Catalog([None], replaced="3", created="5")
    committed(catalog)
    assert catalog.removed == []


@pytest.mark.parametrize("created", ["4", "6", None])
def test_what_a_merge_of_manifests_made_useless_goes(created: str | None) -> None:
    catalog = Catalog([None], replaced="3", created=created)
    committed(catalog)
    assert catalog.removed == [(1, [])]


def test_a_refused_commit_is_made_again_on_the_new_state(pauses: list[float]) -> None:
    catalog = Catalog([REFUSED, REFUSED, None])
    seen: list[int] = []
    assert committed(catalog, lambda base: seen.append(base.state)).snapshotId() == 3
    assert seen == [1, 2, 3], "the check looks at the state that is replaced"
    assert catalog.removed == [(3, ["list 1", "list 2"])]
    assert 0 < pauses[0] < pauses[1] * 2


def test_a_refusal_may_be_wrong() -> None:
    """A proxy sent the commit twice: the rows must not be added once more."""
    catalog = Catalog([REFUSED], takes_effect=True)
    assert committed(catalog).snapshotId() == 1
    assert catalog.commits == [(1, "b")]
    assert catalog.removed == []


@pytest.mark.parametrize(
    ("answers", "removed"),
    [([INVALID], ["all"]), ([UNKNOWN], []), ([REFUSED] * 5, ["all"])],
    ids=["refused for good", "unknown", "outrun"],
)
def test_manifests_go_if_it_is_certain_that_nothing_was_committed(
    answers: list[str], removed: list[str]
) -> None:
    catalog = Catalog(answers)
    with pytest.raises(Py4JJavaError):
        committed(catalog)
    assert len(catalog.commits) == len(answers)
    assert catalog.removed == removed


def test_a_check_that_refuses() -> None:
    catalog = Catalog([None])

    def check(_base: Any) -> None:
        raise changed_meanwhile(IDENT)

    with pytest.raises(ReplicationError):
        committed(catalog, check)
    assert (catalog.commits, catalog.removed) == ([], ["all"])


# -- a snapshot that is written before the commit -------------------------------------------------


def test_a_commit_to_the_branch_is_on_the_newest_state() -> None:
    catalog = Catalog([REFUSED, None])
    committed(catalog)
    assert catalog.known == [False, False]


def test_the_first_attempt_is_on_the_known_state(pauses: list[float]) -> None:
    catalog = Catalog([None])
    seen: list[int] = []
    new = written(catalog, lambda base: seen.append(base.state))
    assert (catalog.commits, seen) == ([], [1])
    new.set_refs()
    assert (catalog.known, catalog.commits) == ([True], [(1, "b main")])
    assert (seen, pauses) == ([1], [])


@pytest.mark.parametrize("error", [REFUSED, INVALID])
def test_a_known_state_that_was_old_is_read(error: str) -> None:
    """Some catalogs answer to a change of an old state as to a wrong request."""
    catalog = Catalog([error, None])
    seen: list[int] = []
    new = written(catalog, lambda base: seen.append(base.state))
    new.set_refs()
    assert (catalog.known, seen) == ([True, False], [1, 2])
    assert catalog.commits == [(1, "b main"), (2, "b main")]


@pytest.mark.parametrize(
    ("answers", "commits"),
    [([INVALID, INVALID], 2), ([REFUSED, INVALID], 2), ([UNKNOWN], 1), ([REFUSED] * 5, 5)],
    ids=["invalid", "invalid then", "unknown", "outrun"],
)
def test_a_newest_state_that_is_invalid_is_an_error(answers: list[str], commits: int) -> None:
    catalog = Catalog(answers)
    new = written(catalog)
    with pytest.raises(Py4JJavaError):
        new.set_refs()
    assert len(catalog.commits) == commits
    assert catalog.removed == [], "the caller knows whether the snapshot is given up"


def test_behind_an_error_the_call_may_be_made_again() -> None:
    catalog = Catalog([UNKNOWN, None])
    new = written(catalog)
    with pytest.raises(Py4JJavaError):
        new.set_refs()
    new.set_refs()
    assert (catalog.known, catalog.commits) == ([True, False], [(1, "b main"), (2, "b main")])
    new.remove_useless()
    assert catalog.removed == [(2, ["list 1"])]


def test_behind_a_lost_answer_the_snapshot_is_found() -> None:
    catalog = Catalog([UNKNOWN], takes_effect=True)
    new = written(catalog)
    with pytest.raises(Py4JJavaError):
        new.set_refs()
    new.set_refs()
    assert new.made.snapshotId() == 1
    assert catalog.commits == [(1, "b main")]
    new.remove_useless()
    assert catalog.removed == []


def test_a_snapshot_that_is_there_is_not_checked() -> None:
    """``main`` has moved to the snapshot: as the state before a commit the table is refused."""
    catalog = Catalog([UNKNOWN], takes_effect=True)

    def check(base: Any) -> None:
        if base.snapshot(1) is not None:
            raise changed_meanwhile(IDENT)

    new = written(catalog, check)
    with pytest.raises(Py4JJavaError):
        new.set_refs()
    new.set_refs()
    assert new.made.snapshotId() == 1


def test_a_known_state_may_be_refused_by_the_check() -> None:
    catalog = Catalog([])

    def check(_base: Any) -> None:
        raise changed_meanwhile(IDENT)

    with pytest.raises(ReplicationError):
        written(catalog, check)
    assert catalog.commits == []


def test_no_manifest_is_left_that_no_snapshot_names(dest: Any, lake_ident: LakeIdent) -> None:
    """Each commit merges the manifests before: the manifest of its own file becomes useless."""
    dest._tables.set_properties(lake_ident, {"commit.manifest.min-count-to-merge": "2"}, "testing")
    dest.create_branch(lake_ident, "pgsub_1_1_0")
    for number in range(4):
        given = [append(dest, 10 * number, 10 * number + 3)]
        dest.write(lake_ident, "pgsub_1_1_0", given, stamp(20 + number))
    metadata = dest._tables.metadata(lake_ident, "testing")
    folder = Path(metadata["location"].removeprefix("file:")) / "metadata"
    found = {path.name for path in folder.glob("*-m*.avro")}
    lists = {Path(each["manifest-list"]).name for each in metadata["snapshots"]}
    assert {path.name for path in folder.glob("snap-*.avro")} == lists
    rows = dest._sessions.get().query(
        f"SELECT path FROM lake.{lake_ident.schema}.`{lake_ident.table}`.all_manifests", "testing"
    )
    assert found == {Path(row["path"]).name for row in rows.to_pylist()}
    last = metadata["snapshots"][-1]["summary"]
    assert int(last["manifests-replaced"]) > 0, "or the test tests nothing"
