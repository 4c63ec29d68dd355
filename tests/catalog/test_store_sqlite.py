import dataclasses
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from catalog.errcodes import (
    DuplicateObject,
    InternalError,
    IoError,
    ObjectNotInPrerequisiteState,
    ReplicationError,
    UndefinedObject,
)
from catalog.leaked_slot import LeakedSlot, leaked_slot
from catalog.pg_lsn import LSN
from catalog.pg_replication_origin import origin_name
from catalog.pg_stat_subscription_stats import ConflictType, SubscriptionStats
from catalog.pg_subscription import SubCreate, Subscription, TableOptions
from catalog.pg_subscription_rel import Setter, SubRelState, SubscriptionRel
from catalog.store_sqlite import CatalogStore

SUB = Subscription(
    subname="mysub",
    subconninfo="host=db dbname=shop",
    subpublications=("pub", "Other pub"),
    subslotname="mysub",
    subuuid="c0ffee",
    subskiplsn=LSN(2**64 - 1),
    tables={
        "public.a": TableOptions(),
        '"x.y".b': TableOptions(
            to=("s", "t"),
            adopt=True,
            on_key_conflict="error",
            defaults=(("note", "'local'"),),
            generated=(("total", "price * amount"),),
            keys=(("a", "b"), ("c",)),
        ),
    },
)


def rel(subid: int, name: str = "a", lake: str = "a", state: str = "i") -> SubscriptionRel:
    return SubscriptionRel(subid, 0, SubRelState(state), None, "public", name, "public", lake)


@pytest.fixture
def store() -> Iterator[CatalogStore]:
    store = CatalogStore.open(":memory:")
    yield store
    store.close()


def test_subscription_round_trip(store: CatalogStore) -> None:
    stored = store.insert_subscription(SUB)
    assert stored == dataclasses.replace(SUB, oid=16384)
    assert store.subscription(16384) == stored
    assert store.subscription_by_name("mysub") == stored
    assert store.subscriptions() == [stored]
    changed = store.update_subscription(16384, subenabled=False, subcreate=SubCreate.READY)
    assert store.subscription(16384) == changed
    assert (changed.subenabled, changed.subcreate) == (False, SubCreate.READY)
    assert store.former_owners() == set()
    store.delete_subscription(16384)
    assert store.subscription(16384) is None
    assert store.former_owners() == {"c0ffee"}


def test_names_are_unique_and_oids_never_used_again(store: CatalogStore) -> None:
    first = store.insert_subscription(SUB)
    with pytest.raises(DuplicateObject, match='subscription "mysub" already exists'):
        store.insert_subscription(dataclasses.replace(SUB, subuuid="x"))
    store.delete_subscription(first.oid)
    assert store.insert_subscription(SUB).oid > first.oid


def test_missing_subscription(store: CatalogStore) -> None:
    with pytest.raises(UndefinedObject):
        store.update_subscription(1, subenabled=True)
    with pytest.raises(UndefinedObject):
        store.next_generation(1)
    assert store.rels(1) == []
    store.delete_subscription(1)


def test_generations_survive_a_crash(tmp_path: Path) -> None:
    store = CatalogStore.open(tmp_path)
    subid = store.insert_subscription(SUB).oid
    assert [store.next_generation(subid), store.next_generation(subid)] == [1, 2]
    store.close()
    again = CatalogStore.open(tmp_path)
    assert again.next_generation(subid) == 3
    again.close()


def test_relid_stands_for_the_lake_table(store: CatalogStore) -> None:
    one = store.insert_subscription(SUB).oid
    two = store.insert_subscription(dataclasses.replace(SUB, subname="two", subuuid="2")).oid
    first = store.insert_rel(rel(one, "a", "lake"))
    assert store.insert_rel(rel(two, "a", "lake")).srrelid == first.srrelid
    leaf = store.insert_rel(rel(one, "b", "lake"))
    assert leaf.srrelid != first.srrelid
    store.delete_rel(one, first.srrelid)
    store.delete_rel(one, leaf.srrelid)
    assert store.insert_rel(rel(one, "a", "lake")).srrelid == first.srrelid
    assert store.insert_rel(rel(one, "b", "lake")).srrelid == leaf.srrelid
    assert [row.relname for row in store.rels(one)] == ["a", "b"]


def test_rel_states(store: CatalogStore) -> None:
    subid = store.insert_subscription(SUB).oid
    relid = store.insert_rel(rel(subid)).srrelid
    store.set_rel_state(subid, relid, SubRelState.DATASYNC, None, Setter.TABLESYNC)
    store.update_rel(subid, relid, epoch="e", attempt=1, floor=LSN(5), lake_lsn=LSN(2**63))
    store.set_rel_state(subid, relid, SubRelState.SYNCDONE, LSN(9), Setter.TABLESYNC)
    row = store.set_rel_state(subid, relid, SubRelState.READY, LSN(10), Setter.APPLY)
    assert row == store.rel(subid, relid)
    assert (row.srsubstate, row.srsublsn, row.epoch) == (SubRelState.READY, LSN(10), "e")
    assert (row.floor, row.lake_lsn) == (LSN(5), LSN(2**63))


def test_illegal_rel_changes(store: CatalogStore) -> None:
    subid = store.insert_subscription(SUB).oid
    with pytest.raises(InternalError):
        store.insert_rel(rel(subid, state="s"))  # without an LSN
    with pytest.raises(InternalError):
        store.insert_rel(rel(subid, state="d"))
    relid = store.insert_rel(rel(subid)).srrelid
    with pytest.raises(InternalError):
        store.set_rel_state(subid, relid, SubRelState.READY, LSN(1), Setter.APPLY)
    with pytest.raises(InternalError):
        store.set_rel_state(subid, relid, SubRelState.DATASYNC, LSN(1), Setter.TABLESYNC)
    with pytest.raises(InternalError):
        store.update_rel(subid, relid, srsubstate=SubRelState.READY)
    store.delete_rel(subid, relid)
    with pytest.raises(UndefinedObject):
        store.set_rel_state(subid, relid, SubRelState.DATASYNC, None, Setter.TABLESYNC)
    with pytest.raises(UndefinedObject):
        store.update_rel(subid, relid, attempt=1)


def test_origins(store: CatalogStore) -> None:
    main = origin_name(16384)
    assert (main, origin_name(16384, 16385)) == ("pg_16384", "pg_16384_16385")
    assert [store.origin_create(main), store.origin_create("b"), store.origin_create("c")] == [
        1,
        2,
        3,
    ]
    with pytest.raises(DuplicateObject):
        store.origin_create(main)
    store.origin_drop("b")
    assert store.origin_create("d") == 2
    store.origin_advance(main, LSN(2**40), "snapshot 7")
    store.origin_advance(main, LSN(5), "snapshot 8")
    origin = store.origin_by_name(main)
    assert origin is not None
    assert (origin.remote_lsn, origin.local_lsn) == (LSN(2**40), "snapshot 7")
    store.origin_advance(main, LSN(5), "snapshot 8", go_backward=True)
    assert [o.remote_lsn for o in store.origins()] == [LSN(5), LSN(0), LSN(0)]
    with pytest.raises(UndefinedObject):
        store.origin_advance("nobody", LSN(1), "x")
    store.origin_drop("nobody")
    with pytest.raises(UndefinedObject):
        store.origin_drop("nobody", missing_ok=False)


def test_lowest_origin_id_comes_back(store: CatalogStore) -> None:
    store.origin_create("a")
    store.origin_create("b")
    store.origin_drop("a")
    assert store.origin_create("c") == 1


def test_in_flight(store: CatalogStore) -> None:
    subid = store.insert_subscription(SUB).oid
    store.put_in_flight(subid, [7, 5], LSN(500))
    store.put_in_flight(subid, [7], LSN(600))
    assert store.in_flight(subid) == [(5, LSN(500)), (7, LSN(600))]
    store.clear_in_flight(subid, [5])
    assert store.in_flight(subid) == [(7, LSN(600))]
    store.delete_subscription(subid)
    assert store.in_flight(subid) == []


def test_spark_sessions_outlive_their_subscription(store: CatalogStore) -> None:
    subid = store.insert_subscription(SUB).oid
    store.put_spark_session(subid, 0, 1, "u", "one")
    store.put_spark_session(subid, 0, 2, "u", "two")
    store.put_spark_session(subid, 9, 3, "u", "three")
    store.delete_subscription(subid)
    assert store.spark_sessions(subid, 0) == [("u", "one"), ("u", "two")]
    assert store.all_spark_sessions()[-1] == (subid, 9, 3, "u", "three")
    store.forget_spark_sessions(subid, 0, 1)
    assert store.spark_sessions(subid, 0) == [("u", "two")]


def test_a_session_is_handed_over_to_one_worker(store: CatalogStore) -> None:
    store.put_spark_session(1, 9, 3, "u", "one")
    store.hand_over_spark_session("u", "one", 100.0)
    assert store.all_spark_sessions() == []
    assert store.take_spark_session(2, 8, 4, since=100.5) is None  # idle for too long
    assert store.take_spark_session(2, 8, 4, before=100.0) is None  # not for so long
    assert store.take_spark_session(2, 8, 4, since=100.0) == ("u", "one")
    assert store.all_spark_sessions() == [(2, 8, 4, "u", "one")]
    assert store.take_spark_session(2, 7, 5) is None
    store.hand_over_spark_session("u", "one", 110.0)
    assert store.take_spark_session(2, 7, 5, before=110.5) == ("u", "one")
    store.forget_spark_session("u", "one")
    assert store.all_spark_sessions() == []


def test_a_session_taken_for_no_worker_is_in_no_list(store: CatalogStore) -> None:
    store.hand_over_spark_session("u", "one", 100.0)
    assert store.take_idle_spark_session(since=100.5) is None
    assert store.take_idle_spark_session(before=100.0) is None
    assert store.take_idle_spark_session(since=100.0) == ("u", "one")
    assert store.take_idle_spark_session() is None
    assert store.all_spark_sessions() == []


LEFT = LeakedSlot("mysub", "host=db", "mysub", None, "connection refused", "7", 16400)


def test_leaked_slots(store: CatalogStore) -> None:
    store.put_leaked_slot(dataclasses.replace(LEFT, reason="it was active"))
    store.put_leaked_slot(LEFT)
    assert store.leaked_slots() == [LEFT]
    store.forget_leaked_slot(LEFT)
    assert store.leaked_slots() == []


@pytest.mark.parametrize(
    ("change", "gone"),
    [
        ({"conninfo": "host=10.0.0.7 port=5432"}, True),
        ({"sysid": "8"}, False),  # the same words lead elsewhere by now
        ({"sysid": ""}, True),
        ({"sysid": "", "conninfo": "host=other"}, False),
        ({"slot_name": "other"}, False),
    ],
)
def test_a_leaked_slot_is_one_of_a_server(
    store: CatalogStore, change: dict[str, str], gone: bool
) -> None:
    store.put_leaked_slot(LEFT)
    store.forget_leaked_slot_of_server(dataclasses.replace(LEFT, **change))  # type: ignore[arg-type]  # fields by name
    assert (store.leaked_slots() == []) == gone


@pytest.mark.parametrize(
    ("slot", "sub", "there"),
    [
        (LEFT, {"subconninfo": "user=me host=db"}, True),
        (LEFT, {"datoid": 5}, False),
        (LEFT, {"datoid": None}, False),
        (dataclasses.replace(LEFT, datoid=None), {"datoid": 5}, True),
        (LEFT, {"sysid": "8"}, False),
        (LEFT, {"sysid": None}, True),
        (LEFT, {"sysid": None, "subconninfo": "host=other"}, False),
        (dataclasses.replace(LEFT, sysid=""), {}, True),
        (dataclasses.replace(LEFT, sysid=""), {"subconninfo": "host=other"}, False),
    ],
)
def test_which_subscription_s_server_a_slot_is_on(
    slot: LeakedSlot, sub: dict[str, Any], there: bool
) -> None:
    whose = dataclasses.replace(
        SUB, **{"subconninfo": "host=db", "sysid": "7", "datoid": 16400, **sub}
    )
    assert slot.is_on(whose) == there
    assert leaked_slot(whose, "mysub", "x").is_on(whose)


def test_settings(store: CatalogStore) -> None:
    assert store.settings() == {}
    store.put_settings({"settings": {"spool_memory": 1}})
    assert store.settings() == {"settings": {"spool_memory": 1}}


def test_transactions_are_whole_and_nest(store: CatalogStore) -> None:
    with pytest.raises(RuntimeError), store.transaction():  # noqa: PT012  # what is rolled back is the point
        store.insert_subscription(SUB)
        with store.transaction():
            store.origin_create("a")
        raise RuntimeError
    assert store.subscriptions() == []
    assert store.origins() == []
    with store.transaction():
        store.origin_create("a")
    assert len(store.origins()) == 1


def test_data_version_sees_every_process(tmp_path: Path) -> None:
    mine, other = CatalogStore.open(tmp_path), CatalogStore.open(tmp_path)
    seen = mine.data_version()
    assert mine.data_version() == seen
    other.origin_create("a")
    assert mine.data_version() > seen
    seen = mine.data_version()
    mine.origin_create("b")
    assert mine.data_version() > seen
    mine.close()
    other.close()


def test_writers_in_threads_take_turns(tmp_path: Path) -> None:
    store, other = CatalogStore.open(tmp_path), CatalogStore.open(tmp_path)
    subid = store.insert_subscription(SUB).oid
    seen: list[int] = []

    def take(from_store: CatalogStore) -> None:
        seen.extend(from_store.next_generation(subid) for _ in range(20))

    threads = [threading.Thread(target=take, args=(s,)) for s in (store, store, other, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(1, 81))
    store.close()
    other.close()


def test_files_are_private(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    CatalogStore.open(data_dir).close()
    assert data_dir.stat().st_mode & 0o777 == 0o700
    assert (data_dir / "catalog.db").stat().st_mode & 0o777 == 0o600


def test_reading_makes_no_data_directory(tmp_path: Path) -> None:
    with pytest.raises(IoError, match="is not a data directory") as caught:
        CatalogStore.open(tmp_path / "data", must_exist=True)
    assert caught.value.code == "58P01"
    assert not (tmp_path / "data").exists()
    CatalogStore.open(tmp_path / "data").close()
    CatalogStore.open(tmp_path / "data", must_exist=True).close()


def test_data_directory_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(IoError, match="could not open data directory"):
        CatalogStore.open(tmp_path / "file")
    (tmp_path / "catalog.db").write_text("not a database, certainly not" * 100)
    with pytest.raises(IoError, match="could not use the catalog"):
        CatalogStore.open(tmp_path)


def test_a_full_disk_is_told_as_one(tmp_path: Path) -> None:
    """SQLite says the same of a file that may have no more pages."""
    store = CatalogStore.open(tmp_path)
    store._connection.execute("PRAGMA max_page_count = 1")  # as many as there are, then
    with pytest.raises(IoError, match=r"could not use the catalog .* is full") as caught:
        store.put_settings({f"setting {number}": "x" * 4000 for number in range(99)})
    assert caught.value.code == "53100"
    store.close()


def test_catalog_of_another_version(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "catalog.db") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(ObjectNotInPrerequisiteState, match="incompatible version"):
        CatalogStore.open(tmp_path)


def test_a_catalog_of_version_4_goes_on(tmp_path: Path) -> None:
    """Everything is kept, the columns are those of a new one, and the database is not known."""
    with sqlite3.connect(tmp_path / "catalog.db") as connection:
        connection.executescript(Path(__file__).with_name("catalog_4.sql").read_text())
    connection.close()
    for _ in range(2):
        with closing(CatalogStore.open(tmp_path)) as old:
            (sub,) = old.subscriptions()
            assert (sub.sysid, sub.datoid, sub.max_flush_lsn) == ("7", None, LSN(9))
            assert sub.subsynccommit == "on", "the subscription waited for the disk so far"
            left = LeakedSlot("left", "host=db", "gone", "/p", "in use")
            other = LeakedSlot("left", "host=other", "gone", None, "in use")
            assert sorted(old.leaked_slots(), key=lambda slot: slot.conninfo) == [left, other]
    with closing(CatalogStore.open(tmp_path)) as old:
        old.update_subscription(sub.oid, datoid=16400)  # known at last, not another one
        assert old.origin_lsn("pg_16384_16385") == 7
        old.forget_leaked_slot(left)
        assert old.leaked_slots() == [other]
        assert old.insert_subscription(dataclasses.replace(SUB, subname="new")).oid == 16386
    CatalogStore.open(tmp_path / "new").close()
    assert layout(tmp_path) == layout(tmp_path / "new")


@pytest.mark.parametrize("version", [5, 6, 7, 8, 11])
def test_a_catalog_of_a_later_version_goes_on(tmp_path: Path, version: int) -> None:
    with sqlite3.connect(tmp_path / "catalog.db") as connection:
        connection.executescript(Path(__file__).with_name("catalog_4.sql").read_text())
        for number in range(5, version + 1):
            upgrade = resources.files("catalog").joinpath(f"upgrade_{number}.sql").read_text()
            connection.executescript(f"{upgrade}; PRAGMA user_version = {number};")
    connection.close()
    with closing(CatalogStore.open(tmp_path)) as old:
        (sub,) = old.subscriptions()
        assert (old.lake_maintenance(sub.oid), old.lake_upkeep(sub.oid)) == ([], [])
    CatalogStore.open(tmp_path / "new").close()
    assert layout(tmp_path) == layout(tmp_path / "new")


def layout(data_dir: Path) -> dict[str, list[Any]]:
    """Each table's columns."""
    with closing(sqlite3.connect(data_dir / "catalog.db")) as connection:
        names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        return {
            name: connection.execute(f"PRAGMA table_info({name})").fetchall() for (name,) in names
        }


def test_too_many_origins(store: CatalogStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catalog.store_sqlite.MAX_REPLICATION_ORIGIN", 1)
    store.origin_create("a")
    with pytest.raises(ReplicationError) as caught:
        store.origin_create("b")
    assert caught.value.code == "54000"


def test_skip_lsn_is_cleared_only_if_it_is_that_one(store: CatalogStore) -> None:
    subid = store.insert_subscription(dataclasses.replace(SUB, subskiplsn=LSN(0xABCDEF))).oid
    assert not store.clear_skip_lsn(subid, LSN(0xABCDEE))
    assert store.clear_skip_lsn(subid, LSN(0xABCDEF))
    assert not store.clear_skip_lsn(subid, LSN(0xABCDEF))
    cleared = store.subscription(subid)
    assert cleared is not None
    assert cleared.subskiplsn == 0


def test_stats_are_counted_reset_and_dropped(store: CatalogStore) -> None:
    subid = store.insert_subscription(SUB).oid
    assert store.subscription_stats(subid) == SubscriptionStats(subid)
    store.count_for_stats(subid, apply_error_count=1, confl_update_missing=5)
    store.count_for_stats(subid, sync_error_count=1, confl_update_missing=2)
    counted = SubscriptionStats(
        subid, apply_error_count=1, sync_error_count=1, confl_update_missing=7
    )
    assert store.subscription_stats(subid) == counted
    store.reset_subscription_stats(subid, 77)
    assert store.subscription_stats(subid) == SubscriptionStats(subid, stats_reset=77)
    store.count_for_stats(subid, confl_delete_missing=1)
    assert store.subscription_stats(subid).stats_reset == 77
    store.delete_subscription(subid)
    assert store.subscription_stats(subid) == SubscriptionStats(subid)
    store.count_for_stats(subid, apply_error_count=1)
    store.reset_subscription_stats(subid, 78)
    assert store.subscription_stats(subid) == SubscriptionStats(subid)


def test_counters_go_with_the_transaction(store: CatalogStore) -> None:
    subid = store.insert_subscription(SUB).oid
    with suppress(KeyError), store.transaction():
        store.count_for_stats(subid, apply_error_count=1)
        raise KeyError
    assert store.subscription_stats(subid).apply_error_count == 0


@pytest.mark.parametrize("conflict", ConflictType)
def test_every_conflict_has_its_counter(store: CatalogStore, conflict: ConflictType) -> None:
    subid = store.insert_subscription(SUB).oid
    for _ in range(2):
        store.count_for_stats(subid, **{conflict.column: 3})
    assert getattr(store.subscription_stats(subid), conflict.column) == 6


@pytest.mark.parametrize(
    ("change", "left"),
    [
        ({"timeline": 2}, LSN(0)),
        ({"sysid": "8"}, LSN(0)),
        ({"datoid": 5}, LSN(0)),
        ({"max_flush_lsn": LSN(9), "timeline": 1}, LSN(7)),
    ],
)
def test_a_finished_copy_stands_nowhere_on_another_timeline(
    store: CatalogStore, change: dict[str, Any], left: LSN
) -> None:
    sub = store.insert_subscription(dataclasses.replace(SUB, sysid="7", timeline=1, datoid=4))
    table = store.insert_rel(rel(sub.oid))
    for name in (origin_name(sub.oid), origin_name(sub.oid, table.srrelid)):
        store.origin_create(name)
        store.origin_advance(name, LSN(7), "x")
    store.update_subscription(sub.oid, **change)
    assert [origin.remote_lsn for origin in store.origins()] == [LSN(7), left]
