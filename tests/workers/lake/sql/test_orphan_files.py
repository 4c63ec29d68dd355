"""Orphan files on the real lake: which go, and that nothing goes that anybody may need.

Every file of a table is made to look a week old, so that what stays does so because it is known.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_subscription import Subscription
from tests.workers.lake.two_columns import BIGINT, COLUMNS, append, count, delete, stamp, update
from workers.lake.connect.errors import FileMissing, SessionClosed
from workers.lake.effects import FileSizes, Orphans
from workers.lake.metadata.snapshots import OWNER
from workers.lake.sources import branches_of
from workers.lake.sql.orphan_files import (
    _COPYING,
    _KNOWN,
    KeptFiles,
    _elsewhere,
    _not_ours,
    lists_by_prefix,
    remove_orphans,
)
from workers.lake.sql.statements import (
    branch_path,
    create_namespace,
    create_table,
    set_properties,
    sql_text,
    table_path,
    text,
)
from workers.lake.table import LakeIdent

Make = Callable[..., Any]

DAY = 86400.0
OURS = "pgsub_1_1_1"
V2 = {"format-version": "2"}
SUB = Subscription("mysub", "host=db", ("pub",), subuuid="0f8fad5b-d9cb-469f-a165-70867728950e")


@pytest.fixture
def dest(iceberg: Make, lake_ident: LakeIdent) -> Any:
    made = iceberg()
    made.create_table(lake_ident, COLUMNS, owner="me", relid=7, stamp=stamp(10))
    made.create_branch(lake_ident, OURS)
    return made


def folder(dest: Any, ident: LakeIdent) -> Path:
    newest = sql_text(
        "SELECT max_by(file, `timestamp`) FROM", table_path(ident, "metadata_log_entries")
    )
    found = dest._sessions.get().query(newest, "looking for its folder").column(0)[0].as_py()
    return Path(found.removeprefix("file:")).parents[1]


def batch(dest: Any, ident: LakeIdent, lsn: int, *segments: Any) -> None:
    dest.write(ident, OURS, segments, stamp(lsn))
    dest.publish(ident, OURS, stamp(lsn))


def age(top: Path, days: float = 7) -> None:
    """Make everything in a folder look so old."""
    then = time.time() - days * DAY
    for path in top.rglob("*"):
        os.utime(path, (then, then))


def files(top: Path) -> set[str]:
    """What is in a folder, but for the checksums that Hadoop's file system may keep."""
    found = (path for path in top.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {str(path.relative_to(top)) for path in found}


def plant(top: Path, days: float = 7) -> set[str]:
    """Files as a killed batch and a commit that lost leave them, so many days old."""
    then = time.time() - days * DAY
    names = {
        f"data/00000-1-dead-{days}.parquet",
        f"data/00000-1-dead-{days}-deletes.parquet",
        f"metadata/dead-{days}-m0.avro",
        f"metadata/snap-1-1-dead-{days}.avro",
        f"metadata/00001-dead-{days}.metadata.json",
    }
    for name in names:
        (top / name).parent.mkdir(exist_ok=True)  # an empty table has no data
        (top / name).write_bytes(b"PAR1")
        os.utime(top / name, (then, then))
    return names


def remove(dest: Any, ident: LakeIdent, days: float = 3) -> Orphans:
    done: Orphans = dest.remove_orphans(ident, owner="me", older_than=time.time() - days * DAY)
    return done


def test_what_no_snapshot_of_any_ref_knows_goes(dest: Any, lake_ident: LakeIdent) -> None:
    session = dest._sessions.get()
    batch(dest, lake_ident, 20, append(dest, 0, 100))
    first = dest.table(lake_ident).snapshot_id
    batch(dest, lake_ident, 30, update(dest, [1, 2, 3], BIGINT), delete(dest, 5))
    dest.create_branch(lake_ident, "pgsub_1_2_1")  # a batch that is not published yet
    dest.write(lake_ident, "pgsub_1_2_1", [append(dest, 100, 7)], stamp(40))
    dest.create_branch(lake_ident, "audit")  # somebody else's
    session.command(
        sql_text("INSERT INTO", branch_path(lake_ident, "audit"), "VALUES (1000, 'x')"), "auditing"
    )
    top = folder(dest, lake_ident)
    age(top)
    known = files(top)
    old, young = plant(top, 4), plant(top, 2)
    assert files(top) == known | old | young
    assert remove(dest, lake_ident) == Orphans(len(old))
    assert files(top) == known | young
    assert remove(dest, lake_ident) == Orphans(0)
    assert files(top) == known | young
    assert count(dest, lake_ident) == 99
    for branch, rows in (("pgsub_1_2_1", 106), ("audit", 100)):
        found = session.query(
            sql_text("SELECT count(*), max(v) FROM", branch_path(lake_ident, branch)), "counting"
        )
        assert found.column(0)[0].as_py() == rows
    back = sql_text("SELECT count(*) FROM", table_path(lake_ident), f"VERSION AS OF {first}")
    assert session.query(back, "looking back").column(0)[0].as_py() == 100
    dest.drop_branches(lake_ident, keep=OURS)
    batch(dest, lake_ident, 50, append(dest, 200, 1), delete(dest, 1))  # the table goes on
    assert count(dest, lake_ident) == 99
    assert dest.table(lake_ident).stamp == stamp(50)


def test_listed_files_of_expired_snapshots_stay_and_other_orphans_go(
    dest: Any, lake_ident: LakeIdent
) -> None:
    """However old the file is, a reader of the expired snapshot may have begun a minute ago."""
    listed: list[str] = []
    for lsn in range(20, 24):
        batch(dest, lake_ident, lsn, append(dest, lsn, 1))
    dest.compact(lake_ident, OURS, FileSizes(1 << 20, 1 << 26, 1 << 26, few=2))
    batch(dest, lake_ident, 30, append(dest, 100, 1))
    dest.expire(lake_ident, retain=1, list_files=lambda _, files: listed.extend(files))
    top = folder(dest, lake_ident)
    age(top)
    before = files(top)
    old = plant(top)
    remove_old = partial(
        dest.remove_orphans, lake_ident, owner="me", older_than=time.time() - 3 * DAY
    )
    done = remove_old(listed=lambda: listed)
    assert done == Orphans(len(old))
    assert files(top) == before
    assert remove_old().files == len(listed) > 4, "without the list they are orphans"
    assert count(dest, lake_ident) == 5


def test_every_file_that_is_not_in_the_folder_is_seen(dest: Any, lake_ident: LakeIdent) -> None:
    """Manifests too: Iceberg by itself finds none of them that does not begin with something."""
    batch(dest, lake_ident, 20, append(dest, 0, 10))
    batch(dest, lake_ident, 30, delete(dest, 5))
    session, known = dest._sessions.get(), 0
    for table, column in _KNOWN.items():
        listed = sql_text(f"SELECT count({column}) FROM", table_path(lake_ident, table))
        found = int(session.query(listed, "counting").column(0)[0].as_py())
        assert found, table
        known += found
    said = _elsewhere(session, lake_ident, "/nowhere/", "looking")
    assert said == f"{known} of the files it knows are not in its folder"
    assert _elsewhere(session, lake_ident, f"file:{folder(dest, lake_ident)}/", "looking") is None


def test_batches_go_on_beside_it(dest: Any, iceberg: Make, lake_ident: LakeIdent) -> None:
    batch(dest, lake_ident, 20, append(dest, 0, 10))
    top = folder(dest, lake_ident)
    age(top)
    old = plant(top)
    beside, done, asking = iceberg(), [], threading.Event()

    def run() -> None:
        asking.set()
        done.append(remove(beside, lake_ident))

    thread = threading.Thread(target=run)
    thread.start()
    assert asking.wait(20)
    lsn = 20
    while thread.is_alive() or lsn < 24:
        lsn += 1
        batch(dest, lake_ident, lsn, append(dest, lsn * 10, 10), delete(dest, lsn * 10))
    thread.join()
    assert done == [Orphans(len(old))]
    assert count(dest, lake_ident) == 10 + 9 * (lsn - 20)
    assert dest.table(lake_ident).stamp == stamp(lsn)


def test_it_takes_one_core_and_batches_all(dest: Any, iceberg: Make, lake_ident: LakeIdent) -> None:
    setting, beside = "spark.sql.shuffle.partitions", iceberg()
    remove(beside, lake_ident)
    assert beside._maintenance_sessions.get().conf(setting) == "1"
    assert dest._sessions.get().conf(setting) != "1"


def test_a_session_of_its_own_that_the_server_closed_is_no_fence(
    dest: Any, lake_ident: LakeIdent
) -> None:
    """As a server does with one in which a call has run for an hour."""
    old = plant(folder(dest, lake_ident))
    before = dest._maintenance_sessions.get()
    before.configure()  # or the server does not know it
    dest.release_sessions([before.ids])
    with pytest.raises(SessionClosed):
        remove(dest, lake_ident)
    batch(dest, lake_ident, 20, append(dest, 0, 10))
    assert remove(dest, lake_ident) == Orphans(len(old))
    assert dest._maintenance_sessions.get().ids != before.ids


@pytest.mark.parametrize("days", [0, 0.9])
def test_nothing_younger_than_a_day_goes(dest: Any, lake_ident: LakeIdent, days: float) -> None:
    """Whatever we ask for."""
    top = folder(dest, lake_ident)
    plant(top)
    before = files(top)
    with pytest.raises(ReplicationError):
        remove(dest, lake_ident, days)
    assert files(top) == before


def test_a_table_whose_folder_is_not_ours_is_left_alone(
    iceberg: Make, lake_ident: LakeIdent
) -> None:
    """One that was adopted: another table may lie in its folder."""
    dest = iceberg()
    session = dest._sessions.get()
    session.command(create_namespace(lake_ident), "creating its schema")
    session.command(create_table(lake_ident, COLUMNS, properties=V2, location=None), "creating")
    dest.adopt_table(lake_ident, owner="me", stamp=stamp(10))
    top = folder(dest, lake_ident)
    inner = f"{top}/inner"
    nested = LakeIdent(lake_ident.schema, f"{lake_ident.table}_inner")
    session.command(create_table(nested, COLUMNS, properties=V2, location=inner), "creating")
    session.command(sql_text("INSERT INTO", table_path(nested), "VALUES (1, 'x')"), "inserting")
    age(top)
    before = files(top)
    done = remove(dest, lake_ident)
    assert done.left is not None
    assert "was not named by pgsub" in done.left
    assert files(top) == before
    assert count(dest, nested) == 1


def test_a_table_whose_files_have_another_name_is_left_alone(
    dest: Any, lake_ident: LakeIdent
) -> None:
    """What is listed could be what is known, by another path: on a share that has two."""
    batch(dest, lake_ident, 20, append(dest, 0, 10))
    top = folder(dest, lake_ident).parent
    moved = top / "7-moved-0123abcd"
    dest._sessions.get().command(
        sql_text("ALTER TABLE", table_path(lake_ident), "SET LOCATION", text(str(moved))), "moving"
    )
    data = moved / "data"
    data.mkdir(parents=True, exist_ok=True)
    (data / "old.parquet").write_bytes(b"PAR1")
    age(top)
    before = files(top)
    done = remove(dest, lake_ident)
    assert done.left is not None
    assert "are not in its folder" in done.left
    assert files(top) == before
    assert count(dest, lake_ident) == 10


@pytest.mark.parametrize("owner", ["a3f1c2d4-0000-4000-8000-000000000001", "", "shared"])
def test_a_table_that_belongs_to_somebody_else_is_left_alone(
    dest: Any, lake_ident: LakeIdent, owner: str
) -> None:
    """Dropped, and made anew by another data directory, which knows what is under way there."""
    top = folder(dest, lake_ident)
    dest._sessions.get().command(set_properties(lake_ident, {OWNER: owner}), "taking it over")
    old = plant(top)
    left = remove(dest, lake_ident).left
    assert left is not None
    assert "belongs to somebody else" in left
    assert old <= files(top)


@pytest.mark.parametrize("part", ["", "data", "metadata"])
def test_a_folder_that_is_a_link_is_left_alone(
    dest: Any, lake_ident: LakeIdent, part: str, tmp_path: Path
) -> None:
    """Moved to another disk; who knows what else is there."""
    batch(dest, lake_ident, 20, append(dest, 0, 10))
    top = folder(dest, lake_ident)
    plant(top)
    (top / part).rename(tmp_path / "moved")
    (top / part).symlink_to(tmp_path / "moved")
    before = files(tmp_path)
    assert remove(dest, lake_ident).left == "its folder, or data or metadata in it, is a link"
    assert files(tmp_path) == before
    assert count(dest, lake_ident) == 10


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("7-missing-01234567", None),  # on another machine, say
        (f"7-{'t' * 300}-01234567", "its folder cannot be looked at"),
        ("file/7-t-01234567", "its folder cannot be looked at"),
    ],
)
def test_a_folder_that_cannot_be_looked_at_may_be_a_link(
    tmp_path: Path, name: str, left: str | None
) -> None:
    (tmp_path / "file").write_bytes(b"")
    properties = pa.table({"key": [OWNER], "value": ["me"]})
    session = cast("Any", SimpleNamespace(call=lambda *_: properties))
    assert _not_ours(session, LakeIdent("s", "t"), str(tmp_path / name), "me") == left


@pytest.mark.parametrize(
    ("times", "done"),
    [(0, Orphans(1)), (1, Orphans(1)), (2, Orphans(left="its snapshots expired meanwhile"))],
)
def test_what_another_worker_expires_meanwhile_is_waited_for_once(
    times: int, done: Orphans
) -> None:
    """Of a shared table: its own worker knows that its files are being looked for."""
    answers: list[pa.Table | Exception] = []
    for attempt in range(2):
        answers += [
            pa.table({"file": ["/w/s/7-t-01234567/metadata/v1"]}),
            pa.table({"name": []}),
            FileMissing("the lake's storage failed") if attempt < times else pa.table({"n": [0]}),
        ]

    def call(sql: str, _what: str) -> pa.Table:
        if sql.startswith("SHOW"):
            return pa.table({"key": [OWNER], "value": ["me"]})
        return pa.table({"orphan_file_location": ["x"]})

    def query(*_: object) -> pa.Table:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    session = cast("Any", SimpleNamespace(limit_parallelism=lambda: None, query=query, call=call))
    found = remove_orphans(session, LakeIdent("s", "t"), owner="me", older_than=0)
    assert (found.files, (found.left or "").partition(",")[0]) == (done.files, done.left or "")


def test_a_list_that_another_worker_begins_meanwhile_is_kept() -> None:
    """The table had no list when the removal began; the procedure must not remove by itself."""
    answers = [
        pa.table({"file": ["/w/s/7-t-01234567/metadata/v1"]}),
        pa.table({"name": []}),
        pa.table({"n": [0]}),
    ]
    listed: list[str] = []
    removed: list[str] = []

    def call(sql: str, _what: str) -> pa.Table:
        if sql.startswith("SHOW"):
            return pa.table({"key": [OWNER], "value": ["me"]})
        listed.append("file:/w/expired")
        names = ["/w/expired", "/w/orphan"]
        if "dry_run => TRUE" not in sql:
            removed.extend(names)
        return pa.table({"orphan_file_location": names})

    def remove(files: Sequence[str]) -> int:
        removed.extend(files)
        return len(files)

    query = lambda *_: answers.pop(0)  # noqa: E731 - the steps in order
    session = cast("Any", SimpleNamespace(limit_parallelism=lambda: None, query=query, call=call))
    kept = KeptFiles(lambda: listed, remove, lists_expiries=True)
    found = remove_orphans(session, LakeIdent("s", "t"), owner="me", older_than=0, kept=kept)
    assert (found, removed) == (Orphans(1), ["/w/orphan"])


def test_a_table_that_has_lost_a_file_is_left_alone(dest: Any, lake_ident: LakeIdent) -> None:
    """As an expiry beside it would leave it for a moment."""
    batch(dest, lake_ident, 20, append(dest, 0, 10))
    top = folder(dest, lake_ident)
    old = plant(top)
    manifests = [path for path in (top / "metadata").glob("*-m0.avro") if "dead" not in path.name]
    manifests[0].unlink()
    left = remove(dest, lake_ident).left
    assert left is not None
    assert left.startswith("its snapshots expired meanwhile")
    assert old <= files(top)


def test_a_name_in_an_object_store_is_none_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the worker's own folder has such a link, or must not be looked into."""
    (tmp_path / "s3:/b/w").mkdir(parents=True)
    (tmp_path / "s3:/b/w/7-t-01234567").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    properties = pa.table({"key": [OWNER], "value": ["me"]})
    session = cast("Any", SimpleNamespace(call=lambda *_: properties))
    assert _not_ours(session, LakeIdent("s", "t"), "s3://b/w/7-t-01234567", "me") is None


def test_a_table_that_says_so_is_left_alone(dest: Any, lake_ident: LakeIdent) -> None:
    top = folder(dest, lake_ident)
    old = plant(top)
    session = dest._sessions.get()
    session.command(set_properties(lake_ident, {"gc.enabled": "false"}), "forbidding")
    assert remove(dest, lake_ident).left == "its property gc.enabled is false"
    assert old <= files(top)
    session.command(set_properties(lake_ident, {"gc.enabled": "true"}), "allowing")
    assert remove(dest, lake_ident) == Orphans(len(old))


def test_a_shared_table_of_which_a_source_is_copied_is_left_alone(
    dest: Any, lake_ident: LakeIdent
) -> None:
    """Its first files may be older than any age, and no snapshot knows them."""
    top = folder(dest, lake_ident)
    old = plant(top)
    dest.create_branch(lake_ident, f"{branches_of(SUB)}3_ab_1")  # an apply worker's batch
    dest.create_branch(lake_ident, f"{branches_of(SUB, 17)}3_ab_1")
    done = remove(dest, lake_ident)
    assert done.left is not None
    assert f'branch "{branches_of(SUB, 17)}' in done.left
    assert old <= files(top)
    dest.drop_branches(lake_ident, prefix=branches_of(SUB, 17))
    assert remove(dest, lake_ident) == Orphans(len(old))


@pytest.mark.parametrize(
    ("made", "by_prefix"),
    [
        ("s3://b/w/7-t-0123abcd", True),
        ("abfss://c@a.host/w", True),
        ("/w/t", False),
        ("file:/w/t", False),
        ("file:///w/t", False),
    ],
)
def test_a_local_folder_is_listed_by_hadoop(made: str, by_prefix: bool) -> None:
    assert lists_by_prefix(made) is by_prefix


@pytest.mark.parametrize("relid", [0, 1, 16390])
def test_the_branch_of_a_copy_is_known_by_its_name(relid: int) -> None:
    assert bool(_COPYING.fullmatch(f"{branches_of(SUB, relid)}7_0a1b_1")) is bool(relid)
    assert not _COPYING.fullmatch(f"{branches_of(SUB)}join_0a1b_1")
    assert not _COPYING.fullmatch("pgsub_16384_7_0a1b2c3d_1")
    assert not _COPYING.fullmatch("audit")
