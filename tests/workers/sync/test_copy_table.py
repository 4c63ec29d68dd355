"""A table's copy through the lake in memory: what it reads, what it tells, what it leaves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from catalog.pg_subscription import TableOptions
from catalog.pg_subscription_rel import KEY_UNSURE
from tests.workers.copying import BLOCK, BRANCH, IDENT, START, Copying, PublisherTwin, copying
from workers.columnar.binary.forms import TEXT_ONLY
from workers.lake.copy_plan import CopyPlan
from workers.lake.memory.destination import MemoryDestination
from workers.lake.table import SHARED, SOURCE_COLUMN, LakeColumn, LakeIdent, Stamp
from workers.process.worker_exit import WorkerExit
from workers.publisher import binary_columns
from workers.publisher.connect import parse_conninfo
from workers.publisher.interfaces import Row


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Copying]:
    yield from copying(tmp_path)


@pytest.mark.parametrize("blocks", [1, 20], ids=["one range", "ranges"])
@pytest.mark.parametrize("adopt", [False, True])
def test_a_copy_in_the_place_of_another_leaves_nothing_of_it_and_main_alone(
    world: Copying, blocks: int, adopt: bool
) -> None:
    world.sub = replace(world.sub, tables={"public.a": TableOptions(adopt=adopt)})
    stamp = Stamp("pg_16384", LSN(500), "before", LSN(0))
    column = LakeColumn("id", pa.int32())
    world.dest.create_table(IDENT, [column], owner="u", relid=1, stamp=stamp)
    table = world.dest.lake.tables[IDENT]
    world.dest.lake.commit(table, "main", [{"id": 30}, {"id": 31}])
    world.rel = world.process.store.update_rel(
        world.rel.srsubid, world.rel.srrelid, recopy=True, fingerprint=KEY_UNSURE
    )
    world.dest.copy_source = lambda _statement: []
    rel, keys = world.copy(PublisherTwin([b"1\n"] if blocks == 1 else [], blocks=blocks))
    assert keys == ([1] if blocks == 1 else [])
    assert rel.copied, "what was there is gone: the keys are known"
    stored = world.process.store.rel(rel.srsubid, rel.srrelid)
    assert stored is not None
    assert not stored.key_unsure
    assert [row["id"] for row in world.dest.lake.rows(IDENT)] == [30, 31]


def test_a_first_copy_is_added_to_what_is_there(world: Copying) -> None:
    stamp = Stamp("pg_16384", LSN(500), "before", LSN(0))
    column = LakeColumn("id", pa.int32())
    world.dest.create_table(IDENT, [column], owner="u", relid=1, stamp=stamp)
    world.dest.lake.commit(world.dest.lake.tables[IDENT], "main", [{"id": 30}])
    rel, keys = world.copy(PublisherTwin([b"1\n"]))
    assert (keys, rel.copied) == ([30, 1], False)


def test_rows_that_come_while_the_branch_is_made_are_neither_met_nor_lost(
    world: Copying, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else adds the key that is copied, to a table that was found without rows."""
    made = world.dest.create_branch
    lake = world.dest.lake

    def come_between(ident: LakeIdent, branch: str, at: int | None = None) -> None:
        lake.commit(lake.tables[IDENT], "main", [{"id": 1}], foreign=True)
        made(ident, branch, at)

    monkeypatch.setattr(world.dest, "create_branch", come_between)
    rel, keys = world.copy(PublisherTwin([b"1\n"]))
    assert keys == [1]
    stamp = Stamp("pg_16384", START, rel.epoch or "", START)
    world.dest.write(IDENT, BRANCH, [], stamp)
    with pytest.raises(ReplicationError) as error:
        world.dest.publish(IDENT, BRANCH, stamp)
    assert error.value.code == "40001"
    assert lake.rows(IDENT) == [{"id": 1}]


def test_a_copy_whose_table_was_set_back_meanwhile_is_nobody_s(world: Copying) -> None:
    world.process.store.update_rel(world.rel.srsubid, world.rel.srrelid, epoch="the command's")
    with pytest.raises(WorkerExit, match="copied anew"):
        world.copy(PublisherTwin([b"1\n"]))
    assert world.process.store.rels(world.sub.oid)[0].floor == LSN(0)


def test_a_copy_into_a_shared_table_has_no_rows_of_an_earlier_one(world: Copying) -> None:
    """It is trusted whole: another source's rows are not in its way."""
    options = TableOptions(shared=True)
    world.sub = world.process.store.update_subscription(world.sub.oid, tables={"public.a": options})
    rel, _ = world.copy(PublisherTwin([b"1\n", b"2\n"]))
    source, lake = f"{world.sub.subuuid}:public.a", world.dest.lake
    made = world.dest.table(IDENT)
    assert made is not None
    assert (made.owner, made.columns[-1].name, rel.copied) == (SHARED, SOURCE_COLUMN, True)
    stamp = Stamp("pg_1", START, rel.epoch or "", START, source)
    world.dest.write(IDENT, "pgsub_1_1_1", [], stamp)
    world.dest.publish(IDENT, "pgsub_1_1_1", stamp)
    other = {"id": 9, SOURCE_COLUMN: "another"}
    lake.commit(lake.tables[IDENT], "main", [*lake.rows(IDENT), other])
    rel, keys = world.copy(PublisherTwin([b"3\n"]))
    assert (sorted(keys), rel.copied) == ([3, 9], True)
    assert [row[SOURCE_COLUMN] for row in lake.rows(IDENT)] == [source, source, "another"]


def test_a_table_that_is_not_shared_is_not_joined(world: Copying) -> None:
    world.copy(PublisherTwin([b"1\n"]))
    options = TableOptions(shared=True)
    world.sub = world.process.store.update_subscription(world.sub.oid, tables={"public.a": options})
    with pytest.raises(ReplicationError) as error:
        world.copy(PublisherTwin([b"1\n"]))
    assert error.value.code == "42P07"


def test_a_large_table_is_copied_by_ranges_and_counted_by_their_size(world: Copying) -> None:
    asked: list[str] = []

    def source(statement: str) -> list[bytes]:
        asked.append(statement)
        return [b"%d\n" % len(asked)]

    world.dest.copy_source = source
    _, keys = world.copy(PublisherTwin([], blocks=20))
    assert (keys, len(asked)) == ([1, 2, 3], 3)
    shown = [(each["bytes_processed"], each["done"]) for each in world.link.progress]
    size = 20 * BLOCK
    assert shown == [(0, 0), (size // 3, 1), (2 * size // 3, 2), (size, 3), (size, 3)]
    assert {each["bytes_total"] for each in world.link.progress} == {size}
    assert [each["tuples_processed"] for each in world.link.progress][-2:] == [None, 3]


def test_a_large_table_that_may_not_be_locked_is_copied_by_one_statement(world: Copying) -> None:
    """And its file is looked at afterwards: a rewrite before the lock shows no rows."""
    conn = PublisherTwin([b"1\n", b"2\n"], blocks=20, lockable=False)
    rel, keys = world.copy(conn)
    assert (keys, rel.copied) == ([1, 2], True)
    lock, copy, commit = conn.commands
    assert lock == "SELECT id FROM ONLY public.a LIMIT 0"
    assert copy == "COPY public.a (id) TO STDOUT WITH (FORMAT binary)"
    assert commit == "COMMIT"


def test_a_table_rewritten_before_the_lock_is_copied_again(world: Copying) -> None:
    class Rewritten(PublisherTwin):
        def exec(self, sql: str) -> list[Row]:
            return [("1",)] if "pg_relation_filenode" in sql else super().exec(sql)

    conn = Rewritten([b"1\n"], lockable=False)
    with pytest.raises(ReplicationError, match="was rewritten while it was copied"):
        world.copy(conn)
    assert conn.commands[-1] != "COMMIT"


def test_a_copy_is_stamped_unless_another_commit_may_follow(world: Copying) -> None:
    """Rows that the table had may be in it twice until they are replaced."""
    world.dest.copy_source = lambda _statement: [b"1\n"]
    world.copy(PublisherTwin([], blocks=20))
    lake = world.dest.lake
    table = lake.tables[IDENT]
    stamp = table.snapshots[table.refs[BRANCH]].stamp
    assert stamp is not None
    assert (stamp.lsn, stamp.floor) == (START, START)
    lake.commit(table, "main", [{"id": 30}])
    world.dest.drop_branches(IDENT)
    world.copy(PublisherTwin([], blocks=20))
    assert table.snapshots[table.refs[BRANCH]].stamp is None


def test_the_setting_limits_the_ranges_at_a_time(world: Copying) -> None:
    seen: list[int | None] = []

    class Watched(MemoryDestination):
        def copy(self, ident: LakeIdent, branch: str, plan: Any, progress: Any) -> int:
            seen.append(plan.workers)
            return 0

    world.dest = Watched()
    world.copy(PublisherTwin([], blocks=20))
    assert seen == [3]


def test_ranges_are_copied_from_the_host_of_the_snapshot(world: Copying) -> None:
    """Another of the hosts has no such snapshot, or one of that name with other rows."""
    seen: list[dict[str, str]] = []

    class Watched(MemoryDestination):
        def copy(self, ident: LakeIdent, branch: str, plan: CopyPlan, progress: Any) -> int:
            seen.append(parse_conninfo(plan.conninfo))
            return 0

    class Reached(PublisherTwin):
        def host(self) -> dict[str, str]:
            return {"host": "db2", "hostaddr": "10.0.0.2", "port": "5433"}

    world.dest = Watched()
    world.sub = replace(world.sub, subconninfo="host=db1,db2 port=5432,5433 dbname=shop")
    world.copy(Reached([], blocks=20))
    (found,) = seen
    there = {name: found[name] for name in ("host", "hostaddr", "port", "dbname")}
    assert there == {"host": "db2", "hostaddr": "10.0.0.2", "port": "5433", "dbname": "shop"}


def test_a_password_of_the_environment_is_in_a_private_file_while_ranges_are_copied(
    world: Copying, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int]] = []

    def source(_statement: str) -> list[bytes]:
        (path,) = world.process.data_dir.rglob("passfile")
        seen.append((path.read_text(), path.stat().st_mode & 0o777))
        return []

    monkeypatch.setenv("SHOP_PASSWORD", "a:b\\c")
    world.sub = replace(world.sub, password_env="SHOP_PASSWORD")
    world.dest.copy_source = source
    world.copy(PublisherTwin([], blocks=20))
    assert set(seen) == {("*:*:*:*:a\\:b\\\\c\n", 0o600)}
    assert not list(world.process.data_dir.rglob("passfile"))


def test_a_password_that_no_file_can_hold_is_refused(
    world: Copying, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "two\nlines")
    world.sub = replace(world.sub, password_env="SHOP_PASSWORD")
    with pytest.raises(ReplicationError, match="must not contain a line break"):
        world.copy(PublisherTwin([], blocks=20))


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("version", [15, 16])
@pytest.mark.parametrize("blocks", [1, 20], ids=["one range", "ranges"])
def test_s_014_1_a_table_is_copied_in_binary_form_from_16_on(
    world: Copying, version: int, blocks: int, binary: bool
) -> None:
    """With ``binary = false`` the form is left to us."""
    asked: list[str] = []

    def source(statement: str) -> list[bytes]:
        asked.append(statement)
        return [b"7\n"]

    world.sub = replace(world.sub, subbinary=binary)
    world.dest.copy_source = source
    conn = PublisherTwin([b"7\n"], blocks=blocks, server_version=version)
    _, keys = world.copy(conn)
    copies = asked or [each for each in conn.commands if each.startswith("COPY")]
    assert keys == [7] * len(copies)
    form = "TO STDOUT WITH (FORMAT binary)" if version >= 16 else "TO STDOUT (FORMAT csv)"
    assert all(each.endswith(form) for each in copies)


@pytest.mark.parametrize("binary", [False, True])
def test_014_a_column_whose_binary_form_is_unknown_is_copied_as_text(
    world: Copying, binary: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``binary = true`` insists, and nothing is made in the lake."""
    monkeypatch.setattr(binary_columns, "form_of", lambda *_: None)
    world.sub = replace(world.sub, subbinary=binary)
    conn = PublisherTwin([b"7\n"])
    if binary:
        with pytest.raises(ReplicationError, match="in binary format") as caught:
            world.copy(conn)
        assert caught.value.code == "0A000"
        assert world.dest.table(IDENT) is None
        return
    assert world.copy(conn)[1] == [7]
    assert conn.commands[-2].endswith("TO STDOUT (FORMAT csv)")


def test_014_a_type_that_cannot_be_sent_is_copied_as_text(
    world: Copying, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binary_columns, "form_of", lambda *_: TEXT_ONLY)
    conn = PublisherTwin([b"7\n"])
    assert world.copy(conn)[1] == [7]
    assert conn.commands[-2].endswith("TO STDOUT (FORMAT csv)")
