"""Asks a catalog, with a scratch table, for everything that exactness rests on.

Workers write to a branch, move ``main`` to the branch, and trust that a commit from before a
successor's fence is refused. Not every catalog keeps the promises: one known catalog answers "ok"
to a new branch and makes none, moves ``main`` with an append to a branch, and takes a commit that
is based on a stale state, so that rows of two commits are lost without an error.

The probe makes a table, and in order

1. reads back the position in the summary of the table's snapshot; with a commit service beside a
   Spark server of the user, Spark makes the table, and both must show it, and this process must
   find the file that Spark wrote (``one_catalog``);
2. makes a branch, and reads the branch back;
3. commits to the branch: ``main`` stays where it was, and both snapshots stay in the history;
4. moves ``main`` to the branch, after another writer has committed to ``main``, as a worker would
   whose state of the table is stale: the catalog must refuse; a Hive Metastore without locks is
   asked for the same once more, because there the client refuses what is that stale;
5. makes a second branch with a commit, and moves ``main`` to the branch: the catalog must accept.

A catalog that breaks a promise is refused by the name of the promise (0A000). An error of the store
or of the catalog is passed on. The table is dropped in any case.

Without the gateway, on a Spark server of the user, step 4 is left out: Spark reads the newest state
before every commit.

The scratch table also tells whether a worker could write the files of a new table, for
``lake.writer: files``. The answer is no promise of the catalog, and refuses nothing.
"""

from __future__ import annotations

import contextlib
import uuid
from typing import Final

import pyarrow as pa

from catalog.errcodes import FeatureNotSupported, ReplicationError
from catalog.pg_lsn import LSN
from workers.lake.api.one_catalog import expect_files, expect_table
from workers.lake.api.table_api import GatewayTableApi
from workers.lake.connect.errors import LakeFailure, is_commit_conflict
from workers.lake.connect.sessions import Sessions
from workers.lake.files.tables import layout_of
from workers.lake.iceberg.choose_writer import choose_gateway, choose_table_api
from workers.lake.interfaces.table_api import FileCommits, LateCommits, TableApi
from workers.lake.metadata.snapshots import FENCE, History, stamp_properties
from workers.lake.new_layout import NewTable
from workers.lake.sql.table_api import SqlTableApi
from workers.lake.table import BRANCH_PREFIX, MAIN, LakeColumn, LakeIdent, Stamp
from workers.lake.writer_choice import NO_GATEWAY, Unwritable

SCHEMA: Final = "pg_catalog"
"""The schema of the status tables: no table of a publisher is there."""
_COLUMNS: Final = (LakeColumn("n", pa.int32()),)
_FORMAT: Final = 2

BRANCHES: Final = "branches of a table"
SUMMARIES: Final = "the properties of a snapshot"
APART: Final = "commits to a branch apart from main"
HISTORY: Final = "more than one snapshot of a table"
COMPARE_AND_SET: Final = "the refusal of a commit that is based on a stale state of the table"
FAST_FORWARD: Final = "the move of main to a branch"


def new_name() -> str:
    """A name for a scratch table that no probe has had."""
    return f"pgsub_probe_{uuid.uuid4().hex[:12]}"


def probe_catalog(url: str, name: str | None = None, left: str | None = None) -> str | None:
    """Probe the catalog of the lake server at ``url``; 0A000 if the catalog breaks a promise.

    ``name`` is the scratch table's; ``left`` is the table of a probe that died, and is dropped.
    Returns why a worker could not write the files of a new table; None if a worker can.
    """
    gateway, _, close = choose_gateway(url, {})
    sessions = Sessions(url, "pgsub", lambda _user, _session: None, close_catalogs=close)
    tables, commits = choose_table_api(gateway, sessions)
    spark = None if gateway is None or not gateway.beside else SqlTableApi(sessions)
    try:
        if left is not None:
            tables.drop_table(LakeIdent(SCHEMA, left))
        late = tables if isinstance(tables, GatewayTableApi) else None
        return probe(tables, late, name, commits, spark)
    finally:
        sessions.close()
        tables.close()


def probe(
    tables: TableApi,
    late: LateCommits | None,
    name: str | None = None,
    commits: FileCommits | None = None,
    spark: TableApi | None = None,
) -> str | None:
    """Probe the catalog of ``tables``. ``late`` commits on a stale state, where that is possible.

    ``spark`` is Spark's way on a server beside which files are committed: 55000 unless both have
    one catalog and one store. Raises 0A000 if the catalog breaks a promise, and what the catalog or
    the store raises. Returns why a worker could not write files of the scratch table, None if a
    worker could.
    """
    ident = LakeIdent(SCHEMA, name or new_name())
    try:
        _probe(tables, late, ident, commits, spark)
        return NO_GATEWAY if commits is None else _refusal(commits, ident)
    finally:
        with contextlib.suppress(ReplicationError):  # the first error is the one to tell
            tables.drop_table(ident)


def _probe(
    tables: TableApi,
    late: LateCommits | None,
    ident: LakeIdent,
    commits: FileCommits | None,
    spark: TableApi | None,
) -> None:
    created, first, second = (_stamp(number) for number in (1, 2, 3))
    maker = tables if spark is None else spark  # who made the table can drop the table
    maker.create_table(
        ident,
        _COLUMNS,
        NewTable("", 0, _FORMAT),
        stamp_properties(created),
    )
    if spark is not None:
        expect_table(ident, tables, spark)
        if commits is not None:
            expect_files(ident, commits)
    begun = tables.history(ident)
    _expect(begun.tip_stamp(MAIN) == created, SUMMARIES)
    branch = f"{BRANCH_PREFIX}0_0_1"
    grown = _commit_to_branch(tables, ident, branch, first)
    _expect(grown.refs.get(MAIN) == begun.refs.get(MAIN), APART)
    _expect({grown.refs[MAIN], grown.refs[branch]} <= grown.snapshots.keys(), HISTORY)
    if late is not None:
        _refuses_late(tables, late, ident, branch)
    branch = f"{BRANCH_PREFIX}0_0_2"
    tip = _commit_to_branch(tables, ident, branch, second).refs[branch]
    tables.fast_forward(ident, branch)
    _expect(tables.history(ident).refs.get(MAIN) == tip, FAST_FORWARD)


def _refusal(commits: FileCommits, ident: LakeIdent) -> str | None:
    found = layout_of(commits, ident)
    return found.reason if isinstance(found, Unwritable) else None


def _commit_to_branch(tables: TableApi, ident: LakeIdent, branch: str, stamp: Stamp) -> History:
    """Make a branch and commit to the branch; the history afterwards."""
    tables.create_branch(ident, branch)
    _expect(branch in tables.branches(ident), BRANCHES)
    tables.commit_empty(ident, branch, stamp_properties(stamp), _COLUMNS)
    after = tables.history(ident)
    _expect(branch in after.refs, BRANCHES)
    _expect(after.tip_stamp(branch) == stamp, APART)
    return after


def _refuses_late(tables: TableApi, late: LateCommits, ident: LakeIdent, branch: str) -> None:
    def fence() -> None:
        tables.commit_empty(ident, MAIN, {FENCE: uuid.uuid4().hex}, _COLUMNS)

    refused = False
    try:
        late.set_main_late(ident, branch, fence)
    except LakeFailure as error:
        if not is_commit_conflict(error):
            raise
        refused = True
    after = tables.history(ident)
    _expect(refused and after.refs.get(MAIN) != after.refs.get(branch), COMPARE_AND_SET)
    if not late.refuses_at_once(ident):
        raise FeatureNotSupported(
            f"the Hive Metastore of the lake does not keep {COMPARE_AND_SET}",
            detail="Commits are made without a lock (engine.hive.lock-enabled is false), and the"
            " metastore does not compare by itself: of two commits at the same moment, one would"
            " be lost without an error.",
            hint="Commit with locks, as all other writers of the tables: leave"
            " iceberg.engine.hive.lock-enabled out. Or take a metastore of Hive 2.3.10 or 4.",
        )


def _stamp(number: int) -> Stamp:
    return Stamp("probe", LSN(number), uuid.uuid4().hex, LSN(0))


def _expect(kept: bool, promise: str) -> None:
    if not kept:
        raise FeatureNotSupported(
            f"the catalog of the lake does not keep {promise}",
            detail="pgsub asked with a scratch table. With such a catalog, rows could be lost or"
            " doubled without an error.",
            hint="Choose a catalog that docs/catalogs lists as fit.",
        )
