"""Publishing beside other commits to the same table: fences, expiries, anybody's."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from catalog.errcodes import ConnectionFailure, ReplicationError
from tests.waiting import wait_until
from tests.workers.lake.two_columns import COLUMNS, append, count, delete, stamp
from workers.lake.connect.errors import LakeFailure
from workers.lake.effects import FileSizes
from workers.lake.metadata.snapshots import stamp_properties, write_options
from workers.lake.segment import Segment
from workers.lake.sql.statements import branch_path, drop_branch, name_of, set_properties
from workers.lake.table import LakeIdent

Make = Callable[..., Any]


@pytest.mark.timeout(300)
def test_a_zombies_publish_races_the_fence(dest: Any, iceberg: Make, lake_ident: LakeIdent) -> None:
    """Whatever comes first, what the fence says stays true."""
    successor = iceberg()
    landed = 0
    for n in range(6):
        branch = f"pgsub_1_1_{n}"
        dest.create_branch(lake_ident, branch)
        before = dest.table(lake_ident).stamp
        dest.write(lake_ident, branch, [append(dest, n, 1)], stamp(20 + n))
        go = threading.Barrier(2)

        def zombie(branch: str = branch, n: int = n, go: threading.Barrier = go) -> None:
            go.wait()
            # After a refusal the zombie learns what is so; it never makes anything visible.
            with pytest.MonkeyPatch.context(), _refused():
                dest.publish(lake_ident, branch, stamp(20 + n))

        thread = threading.Thread(target=zombie)
        thread.start()
        go.wait()
        said = successor.fence(lake_ident).stamp
        thread.join()
        assert said in (before, stamp(20 + n))
        landed += said != before
        assert successor.table(lake_ident).stamp == said
        assert count(successor, lake_ident) == landed


def test_a_publish_is_not_refused_for_commits_that_leave_main_alone(
    dest: Any, iceberg: Make, lake_ident: LakeIdent
) -> None:
    """An expiry beside the batches is one; Iceberg makes a fast-forward fail for each."""
    other = iceberg()._sessions.get()

    def meddle() -> None:
        for turn in range(4):
            other.command(set_properties(lake_ident, {"turn": str(turn)}), "meddling")

    for n in range(20):
        branch = f"pgsub_1_1_{n}"
        dest.create_branch(lake_ident, branch)
        dest.write(lake_ident, branch, [append(dest, n, 1)], stamp(20 + n))
        thread = threading.Thread(target=meddle)
        thread.start()
        dest.publish(lake_ident, branch, stamp(20 + n))
        thread.join()
    assert count(dest, lake_ident) == 20
    assert dest.table(lake_ident).stamp == stamp(39)


@pytest.mark.parametrize("landed", [True, False])
def test_a_publish_of_which_the_catalog_does_not_know_is_repeated(
    dest: Any, lake_ident: LakeIdent, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    """Where it was done the second one finds main at the branch: no fence, nothing twice."""
    dest.create_branch(lake_ident, "pgsub_1_1_0")
    dest.write(lake_ident, "pgsub_1_1_0", [append(dest, 0, 3)], stamp(20))
    really, unknown = dest._tables._fast_forward, LakeFailure("the lake failed")
    unknown.message = "org.apache.iceberg.exceptions.CommitStateUnknownException: cannot tell"
    asked: list[str] = []

    def fast_forward(ident: LakeIdent, branch: str, **how: Any) -> Any:
        asked.append(branch)
        found = really(ident, branch, **how) if landed or len(asked) > 1 else None
        if len(asked) == 1:
            raise unknown
        return found

    before = len(dest.table(lake_ident).snapshots)
    monkeypatch.setattr(dest._tables, "_fast_forward", fast_forward)
    assert dest.publish(lake_ident, "pgsub_1_1_0", stamp(20)) is not None
    monkeypatch.undo()
    assert len(asked) == 2
    assert count(dest, lake_ident) == 3
    table = dest.table(lake_ident)
    assert (table.stamp, len(table.snapshots)) == (stamp(20), before)


def test_a_publish_that_is_outrun_each_time_is_refused_behind_a_fence(
    dest: Any, lake_ident: LakeIdent, monkeypatch: pytest.MonkeyPatch
) -> None:
    dest.create_branch(lake_ident, "pgsub_1_1_0")
    dest.write(lake_ident, "pgsub_1_1_0", [append(dest, 0, 3)], stamp(20))
    outrun = LakeFailure("the lake failed")
    outrun.message = "org.apache.iceberg.exceptions.CommitFailedException: stale"
    asked: list[str] = []

    def fast_forward(_ident: LakeIdent, branch: str, **_how: Any) -> Any:
        asked.append(branch)
        raise outrun

    with monkeypatch.context() as patch:
        patch.setattr(dest._tables, "_fast_forward", fast_forward)
        with pytest.raises(ReplicationError) as caught:
            dest.publish(lake_ident, "pgsub_1_1_0", stamp(20))
    assert caught.value.code == "40001"
    assert len(asked) == 5
    assert count(dest, lake_ident) == 0
    with _refused():
        dest.publish(lake_ident, "pgsub_1_1_0", stamp(20))  # main is behind a fence now
    assert count(dest, lake_ident) == 0


@pytest.mark.parametrize("landed", [True, False])
def test_an_unanswered_publish_at_the_position_that_main_has(
    dest: Any, lake_ident: LakeIdent, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    """An empty batch shows what was rewritten: that main has its position says nothing."""
    dest.create_branch(lake_ident, "pgsub_1_1_0")
    dest.write(lake_ident, "pgsub_1_1_0", [append(dest, 0, 3)], stamp(20))
    dest.publish(lake_ident, "pgsub_1_1_0", stamp(20))
    dest.compact(lake_ident, "pgsub_1_1_0", FileSizes(1 << 20, 1 << 27, 1 << 27))
    dest.write(lake_ident, "pgsub_1_1_0", [], stamp(20))
    really = dest._tables.fast_forward

    def fast_forward(ident: LakeIdent, branch: str, **how: Any) -> None:
        if landed:
            really(ident, branch, **how)
        raise ConnectionFailure("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(dest._tables, "fast_forward", fast_forward)
        if landed:
            assert dest.publish(lake_ident, "pgsub_1_1_0", stamp(20)) is None
        else:
            with pytest.raises(ReplicationError) as caught:
                dest.publish(lake_ident, "pgsub_1_1_0", stamp(20))
            assert caught.value.code == "40001"
    assert (dest.table(lake_ident).stamp, count(dest, lake_ident)) == (stamp(20), 3)


def test_batches_go_on_beside_expiries(dest: Any, iceberg: Make, lake_ident: LakeIdent) -> None:
    """Whichever commits first: no batch is refused, no row is lost, and the position stays."""
    other, branch, over = iceberg(), "pgsub_1_1_0", threading.Event()
    dest.create_branch(lake_ident, branch)
    gone: list[int] = []
    batches = 0

    def expire() -> None:
        while not over.is_set():
            gone.append(other.expire(lake_ident, retain=1))

    thread = threading.Thread(target=expire)
    thread.start()
    try:
        while batches < 8 or (sum(map(bool, gone)) < 2 and batches < 500):
            segments = [append(dest, batches * 10, 2), delete(dest, batches * 10)]
            dest.write(lake_ident, branch, segments, stamp(20 + batches))
            dest.publish(lake_ident, branch, stamp(20 + batches))
            batches += 1
    finally:
        over.set()
        thread.join()
    assert sum(gone) > 0
    assert count(dest, lake_ident) == batches
    assert dest.table(lake_ident).stamp == stamp(19 + batches)


def test_branches_come_and_go_beside_other_commits(
    dest: Any, iceberg: Make, lake_ident: LakeIdent
) -> None:
    other = iceberg()._sessions.get()

    def meddle() -> None:
        for turn in range(40):
            other.command(set_properties(lake_ident, {"turn": str(turn)}), "meddling")

    thread = threading.Thread(target=meddle)
    thread.start()
    for n in range(15):
        dest.create_branch(lake_ident, f"pgsub_1_1_{n}")
        dest.drop_branches(lake_ident)
    thread.join()


@pytest.mark.parametrize("direct", [True, False], ids=["by the API", "by Spark"])
def test_a_branch_that_was_dropped_and_came_anew_is_not_shown(
    iceberg: Make, lake_ident: LakeIdent, tmp_path: Path, direct: bool
) -> None:
    """An append through Spark makes it anew where main is: what was emptied before is back."""
    dest, branch, again = iceberg(direct=direct), "pgsub_1_1_1", "pgsub_1_1_2"
    emptied = Segment((), truncate=True)
    dest.create_table(lake_ident, COLUMNS, owner="me", relid=7, stamp=stamp(10))
    dest.create_branch(lake_ident, branch)
    dest.write(lake_ident, branch, [append(dest, 0, 3)], stamp(20))
    dest.publish(lake_ident, branch, stamp(20))
    dest.create_branch(lake_ident, branch)
    dest.write(lake_ident, branch, [emptied], stamp(25))
    under_way, dropped = tmp_path / "under way", tmp_path / "dropped"
    os.mkfifo(dropped)

    def slowly(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        under_way.touch()
        dropped.read_bytes()
        for each in batches:
            yield pa.RecordBatch.from_pydict({"id": each["id"], "v": ["x"] * each.num_rows})

    session, target = dest._sessions.get(), name_of(branch_path(lake_ident, branch))
    rows = session.spark.range(3, 5, 1, 1).mapInArrow(slowly, "id bigint, v string")
    options = write_options(stamp_properties(stamp(30)))
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(session.append, rows, target, options, "appending slowly")
        wait_until(under_way.exists, what="the slow append")
        iceberg()._sessions.get().command(drop_branch(lake_ident, branch), "meddling")
        dropped.write_bytes(b"")
        done.result()
    assert count(dest, lake_ident, branch) == 5
    with pytest.raises(ReplicationError, match="it was changed meanwhile") as caught:
        dest.publish(lake_ident, branch, stamp(30))
    assert caught.value.code == "40001"
    dest.create_branch(lake_ident, again)
    whole = Segment((), truncate=True, from_branch=branch)
    with pytest.raises(ReplicationError, match="it was changed meanwhile"):
        dest.write(lake_ident, again, [whole], stamp(30))
    assert count(dest, lake_ident) == 3
    dest.create_branch(lake_ident, branch)  # ours once more
    dest.write(lake_ident, branch, [emptied, append(dest, 3, 2)], stamp(30))
    dest.publish(lake_ident, branch, stamp(30))
    assert count(dest, lake_ident) == 2


class _refused:  # noqa: N801 - reads as a statement
    """A publish may be refused with 40001 here, and with nothing else."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        return isinstance(error, ReplicationError) and error.code == "40001"
