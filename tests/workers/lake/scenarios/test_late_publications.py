"""The publication of a held batch takes effect behind the worker's back, on real tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.workers.lake.two_columns import COLUMNS, append, count, delete, stamp
from workers.lake.api.held_commits import HeldCommit
from workers.lake.segment import Segment, SourcePart
from workers.lake.table import MAIN, LakeIdent

pytestmark = pytest.mark.spark

BRANCH = "pgsub_1_1_0"


@pytest.fixture(params=[2, 3], ids=["position deletes", "deletion vectors"])
def dest(request: pytest.FixtureRequest, iceberg: Callable[..., Any], lake_ident: LakeIdent) -> Any:
    """A table of ten rows with a standing branch."""
    made = iceberg(format_version=request.param)
    made.create_table(lake_ident, COLUMNS, owner="me", relid=7, stamp=stamp(10))
    made.create_branch(lake_ident, BRANCH)
    hold(made, lake_ident, append(made, 0, 10), 20)
    made.publish(lake_ident, BRANCH, stamp(20))
    return made


def hold(dest: Any, ident: LakeIdent, segment: Segment, lsn: int) -> HeldCommit:
    part = SourcePart([segment], stamp(lsn))
    dest.write_sources(ident, BRANCH, [part], may_hold=True)
    found: HeldCommit = dest._tables._loaded._held[ident].commit
    return found


def changes(dest: Any) -> list[Callable[[], Segment]]:
    return [lambda: append(dest, 10, 10), lambda: delete(dest, 3, 4)]


@pytest.mark.parametrize(("change", "rows"), [(0, 20), (1, 8)], ids=["inserts", "deletes"])
def test_behind_a_lost_answer_the_batch_is_there_once(
    dest: Any, lake_ident: LakeIdent, change: int, rows: int
) -> None:
    new = hold(dest, lake_ident, changes(dest)[change](), 21).snapshot
    new.set_refs()
    new._refused, new.made = new.made, None
    dest.publish(lake_ident, BRANCH, stamp(21))
    assert count(dest, lake_ident) == rows
    hold(dest, lake_ident, append(dest, 30, 5), 22)
    dest.publish(lake_ident, BRANCH, stamp(22))
    assert count(dest, lake_ident) == rows + 5


@pytest.mark.parametrize(("change", "rows"), [(0, 20), (1, 8)], ids=["inserts", "deletes"])
def test_a_first_request_that_overtakes_the_second(
    dest: Any, lake_ident: LakeIdent, change: int, rows: int
) -> None:
    """The table names the manifests of the first request; no removal may take these manifests."""
    new = hold(dest, lake_ident, changes(dest)[change](), 21).snapshot
    first = new.made
    assert not new.write_again(), "the first request had no answer, and no effect so far"
    with dest._tables._gateway.api("testing") as api:
        operations = api.load(lake_ident).operations()
        base = operations.current()
        operations.commit(base, api.with_snapshot(base, first, BRANCH, MAIN))
    dest.publish(lake_ident, BRANCH, stamp(21))
    assert count(dest, lake_ident) == rows
    hold(dest, lake_ident, append(dest, 30, 5), 22)
    dest.publish(lake_ident, BRANCH, stamp(22))
    assert count(dest, lake_ident) == rows + 5
