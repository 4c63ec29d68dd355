"""A commit by compare-and-set: attempts, wrong refusals, and the manifests that must go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from catalog.errcodes import ReplicationError
from tests.workers.lake.two_columns import append, stamp
from workers.lake.api import snapshot_commits
from workers.lake.api.snapshot_commits import commit_snapshot
from workers.lake.refusals import changed_meanwhile
from workers.lake.table import LakeIdent

IDENT = LakeIdent("public", "t")
REFUSED = "org.apache.iceberg.exceptions.CommitFailedException"
UNKNOWN = "org.apache.iceberg.exceptions.CommitStateUnknownException"
INVALID = "org.apache.iceberg.exceptions.ValidationException"


def java_error(name: str) -> Py4JJavaError:
    kind = SimpleNamespace(getName=lambda: name)
    return Py4JJavaError("failed", SimpleNamespace(_target_id="o1", getClass=lambda: kind))


@dataclass
class Catalog:
    """A table's operations, Iceberg's update and the API in one; ``answers`` are the commits'."""

    answers: Sequence[str | None]
    takes_effect: bool = False
    replaced: str | None = None
    created: str | None = None
    snapshots: dict[int, Any] = field(default_factory=dict)
    removed: list[Any] = field(default_factory=list)
    attempts: int = 0
    commits: list[tuple[int, str]] = field(default_factory=list)
    states: int = 0

    def operations(self) -> Catalog:
        return self

    def apply(self) -> Any:
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

    def with_snapshot(self, base: Any, made: Any, branch: str) -> Any:
        return base.state, made, branch

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


def committed(catalog: Any, check: Callable[[Any], None] = lambda _base: None) -> Any:
    return commit_snapshot(catalog, catalog, catalog, "b", check, 2)


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
    assert catalog.removed == [(1, ["list 2"])]


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
