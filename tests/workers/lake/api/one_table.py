"""A table in a catalog, and Iceberg's objects of the table, without a server.

``main`` and the branch are at snapshot 4, and a batch adds snapshot 5. Every attempt to write the
batch makes a list of its own: ``list 1``, ``list 2``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal

from py4j.protocol import Py4JJavaError

from catalog.pg_lsn import LSN
from workers.lake.api.held_commits import HeldCommit, check_main
from workers.lake.api.snapshot_commits import NewSnapshot
from workers.lake.metadata.snapshots import stamp_properties
from workers.lake.table import MAIN, LakeIdent, Stamp

T = LakeIdent("public", "t")
BRANCH = "pgsub_1_1_1"
STAMP = Stamp("pg_1", LSN(20), "e", LSN(0))
BEFORE, BATCH, FENCE = 4, 5, 6

REFUSED = "org.apache.iceberg.exceptions.CommitFailedException"
UNKNOWN = "org.apache.iceberg.exceptions.CommitStateUnknownException"
INVALID = "org.apache.iceberg.exceptions.ValidationException"


def java_error(name: str) -> Py4JJavaError:
    kind = SimpleNamespace(getName=lambda: name)
    return Py4JJavaError("failed", SimpleNamespace(_target_id="o1", getClass=lambda: kind))


def new_snapshot(
    snapshot_id: int, parent: int | None, written: str, operation: str = "append"
) -> Any:
    return SimpleNamespace(
        snapshotId=lambda: snapshot_id,
        parentId=lambda: parent,
        manifestListLocation=lambda: written,
        allManifests=lambda _io: [],
        operation=lambda: operation,
        summary=dict[str, str],
    )


@dataclass(frozen=True, slots=True)
class State:
    """A table's metadata. The branches ``ours`` have an age."""

    refs: Mapping[str, int]
    snapshots: Mapping[int, Any]
    ours: frozenset[str] = frozenset({BRANCH})

    def ref(self, name: str) -> Any:
        at, age = self.refs.get(name), 1 if name in self.ours else None
        if at is None:
            return None
        return SimpleNamespace(snapshotId=lambda: at, maxRefAgeMs=lambda: age)

    def snapshot(self, snapshot_id: int) -> Any:
        return self.snapshots.get(snapshot_id)

    def with_snapshot(self, made: Any, *refs: str) -> State:
        snapshots = {**self.snapshots, made.snapshotId(): made}
        at = dict.fromkeys(refs, made.snapshotId())
        return replace(self, refs={**self.refs, **at}, snapshots=snapshots)


def at_first() -> State:
    """``main`` and the branch are at snapshot 4."""
    return State({MAIN: BEFORE, BRANCH: BEFORE}, {BEFORE: new_snapshot(BEFORE, None, "list 0")})


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the catalog; a late commit takes effect before the next one."""

    error: str | None = None
    effect: Literal["at once", "late", "never"] = "never"


@dataclass
class OneTable:
    """The catalog and the Java API; ``answers`` in turn, then the truth.

    ``asked``: each request. ``lists``: the lists of manifests that were written and not removed.
    """

    answers: list[Answer] = field(default_factory=list)
    state: State = field(default_factory=at_first)
    asked: list[str] = field(default_factory=list)
    lists: set[str] = field(default_factory=set)
    late: State | None = None
    answers_with_state: bool = True

    def load(self, ident: LakeIdent) -> Table:
        assert ident == T
        self.asked.append("load")
        return Table(self)

    def commit(self, base: State, new: State) -> None:
        self.asked.append("commit")
        self.state, self.late = self.late or self.state, None
        answer = self.answers.pop(0) if self.answers else Answer(effect="at once")
        if base.refs != self.state.refs:
            raise java_error(REFUSED)
        if answer.effect == "at once":
            self.state = new
        elif answer.effect == "late":
            self.late = new
        if answer.error is not None:
            raise java_error(answer.error)

    def add_to_main(self, snapshot_id: int = FENCE) -> None:
        """Another writer's commit."""
        made = new_snapshot(snapshot_id, self.state.refs[MAIN], "another list")
        self.state = self.state.with_snapshot(made, MAIN)

    def add_branch(self) -> None:
        """Another writer's branch."""
        self.state = replace(self.state, refs={**self.state.refs, "another": BEFORE})

    @contextlib.contextmanager
    def on_known_state(self, update: Update, table: Table | None) -> Iterator[None]:
        update.reads = table is None
        yield
        update.reads = True

    def with_snapshot(self, base: State, made: Any, *refs: str) -> State:
        return base.with_snapshot(base.snapshot(made) if isinstance(made, int) else made, *refs)

    def change_of(self, ident: LakeIdent, base: State, new: State) -> Callable[[], None]:
        assert ident == T
        return partial(self.commit, base, new)

    def change_of_main(self, ident: LakeIdent, base: State, tip: int) -> Callable[[], None]:
        return self.change_of(ident, base, self.with_snapshot(base, tip, MAIN))

    def move_main(self, operations: Table, base: State, tip: int) -> None:
        operations.commit(base, self.with_snapshot(base, tip, MAIN))

    def as_json(self, base: State) -> dict[str, Any]:
        refs = {
            name: {"snapshot-id": at, **({"max-ref-age-ms": 1} if name in base.ours else {})}
            for name, at in base.refs.items()
        }
        snapshots = [
            {
                "snapshot-id": each.snapshotId(),
                "parent-snapshot-id": each.parentId(),
                "timestamp-ms": 0,
                "summary": stamp_properties(STAMP) if each.snapshotId() == BATCH else {},
            }
            for each in base.snapshots.values()
        ]
        return {"current-snapshot-id": base.refs[MAIN], "refs": refs, "snapshots": snapshots}

    def set_branch(self, operations: Table, branch: str, at: int) -> None:
        base = operations.current()
        if base.snapshot(at) is None:
            raise java_error(INVALID)
        refs, ours = {**base.refs, branch: at}, base.ours | {branch}
        operations.commit(base, replace(base, refs=refs, ours=ours))

    def made_table(self, _transaction: Any) -> Table:
        return Table(self)

    def is_cleanable(self, thrown: Any) -> bool:
        return str(thrown.getClass().getName()) != UNKNOWN

    def remove_all_manifests(self, update: Update) -> None:
        self.lists -= {f"list {number + 1}" for number in range(update.written)}

    def remove_useless_manifests(self, _table: Any, _update: Any, _made: Any, lists: Any) -> None:
        self.lists -= set(lists)

    def named_list(self) -> str:
        """The list of the batch's snapshot in the table."""
        return str(self.state.snapshots[BATCH].manifestListLocation())


class Table:
    """Iceberg's object of the table, with the operations."""

    def __init__(self, lake: OneTable) -> None:
        self.lake, self.state = lake, lake.state

    def operations(self) -> Table:
        return self

    def io(self) -> str:
        return "io"

    def currentSnapshot(self) -> Any:  # noqa: N802 - Iceberg's name
        return self.state.snapshot(self.state.refs[MAIN])

    def current(self) -> State:
        return self.state

    def refresh(self) -> State:
        self.lake.asked.append("read")
        self.state = self.lake.state
        return self.state

    def commit(self, base: State, new: State) -> None:
        self.lake.commit(base, new)
        self.state = self.lake.state


class Update:
    """Iceberg's commit of a snapshot."""

    def __init__(self, table: Table) -> None:
        self.table, self.reads, self.written = table, True, 0

    def apply(self) -> Any:
        if self.reads:
            self.table.refresh()
        self.written += 1
        self.table.lake.lists.add(written := f"list {self.written}")
        return new_snapshot(BATCH, self.table.state.refs[BRANCH], written)


def hold(lake: Any, table: Any, stamp: Stamp = STAMP, branch: str = BRANCH) -> HeldCommit:
    """The held commit of a batch, written on the state that the table object has."""

    def check(base: Any) -> None:
        check_main(T, base, BRANCH, BEFORE)

    new = NewSnapshot(lake, table, Update(table), [BRANCH, MAIN], check, 1, on_known_state=True)
    new.write()
    return HeldCommit(T, branch, stamp, new, BATCH)
