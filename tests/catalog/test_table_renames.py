"""Notes about renamed tables, what finishing one stores, and a configuration of former names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from catalog.expired_files import ExpiredFiles
from catalog.pg_lsn import LSN
from catalog.pg_subscription import Subscription, TableOptions
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from catalog.store_sqlite import CatalogStore
from catalog.table_renames import (
    TableRename,
    follows_rename,
    former_names,
    is_followed,
    under_present_names,
)
from config.guc import Settings


@pytest.fixture
def store() -> Iterator[CatalogStore]:
    store = CatalogStore.open(":memory:")
    store.insert_subscription(Subscription("mysub", "host=db", ("pub",), subuuid="u"))
    yield store
    store.close()


def table(store: CatalogStore, name: str, **more: Any) -> SubscriptionRel:
    subid = store.subscriptions()[0].oid
    rel = SubscriptionRel(subid, 0, SubRelState.READY, None, "public", name, "public", name)
    rel = store.insert_rel(rel)
    return store.update_rel(subid, rel.srrelid, **more)


def rename(rel: SubscriptionRel, name: str, lake: str | None = None) -> TableRename:
    where = ("public", name, "public", lake or name)
    return TableRename(rel.srsubid, rel.srrelid, *where, noted=5, lsn=LSN(77))


def test_a_note_is_there_until_it_is_finished(store: CatalogStore) -> None:
    rel = table(store, "a")
    noted = rename(rel, "b")
    store.put_lake_durable([("public", "a", "file-7")])
    store.note_rename(noted, rel)
    assert store.renames(rel.srsubid) == [noted]
    assert store.rel(rel.srsubid, rel.srrelid) == rel
    assert store.lake_durable() == [("public", "a", "file-7"), ("public", "b", "file-7")]
    store.finish_rename(noted)
    assert store.renames(rel.srsubid) == []
    now = store.rel(rel.srsubid, rel.srrelid)
    assert now == replace(rel, relname="b", lake_table="b", former_names=("public.a",))
    assert store.lake_durable() == [("public", "b", "file-7")]


def test_a_note_leaves_the_file_of_another_lake_table_as_it_is(store: CatalogStore) -> None:
    rel = table(store, "a")
    table(store, "b")
    files = [("public", "a", "file-7"), ("public", "b", "file-41")]
    store.put_lake_durable(files)
    store.note_rename(rename(rel, "b"), rel)
    assert store.lake_durable() == files


def test_what_hangs_on_the_lake_table_s_name_goes_along(store: CatalogStore) -> None:
    rel = table(store, "a")
    lists = [ExpiredFiles(subid, "public", "a", "uuid", 1.0, ["f"]) for subid in (rel.srsubid, 9)]
    for each in lists:
        store.add_expired_files(each)
    store.note_rename(rename(rel, "b"), rel)
    store.finish_rename(rename(rel, "b"))
    assert [each.subid for each in store.expired_files_of_table("public", "b")] == [rel.srsubid]
    assert [each.subid for each in store.expired_files_of_table("public", "a")] == [9]
    # A new table under the old name has an oid of its own, and the renamed one comes back to its.
    assert table(store, "a").srrelid != rel.srrelid
    store.delete_rel(rel.srsubid, rel.srrelid)
    assert table(store, "b").srrelid == rel.srrelid


def test_a_table_that_leaves_takes_its_note_along(store: CatalogStore) -> None:
    rel = table(store, "a")
    store.note_rename(rename(rel, "b"), rel)
    store.delete_rel(rel.srsubid, rel.srrelid)
    assert store.renames(rel.srsubid) == []
    store.finish_rename(rename(rel, "b"))
    assert store.rels(rel.srsubid) == []


def test_a_lake_table_of_another_row_is_taken(store: CatalogStore) -> None:
    a, b = table(store, "a"), table(store, "b")
    assert store.is_lake_table_taken(rename(a, "b"))
    assert not store.is_lake_table_taken(rename(a, "c"))
    assert not store.is_lake_table_taken(rename(b, "b"))


def test_former_names_are_in_order_and_without_the_present_one(store: CatalogStore) -> None:
    rel = table(store, "a")
    for name in ("b", "c", "a", "d"):
        rel = replace(rel, former_names=former_names(rel, rename(rel, name)), relname=name)
    assert rel.former_names == ("public.b", "public.c", "public.a")


def test_an_entry_under_a_former_name_counts(store: CatalogStore) -> None:
    rel = table(store, "c", former_names=("public.a", "public.b"))
    keyed, other = TableOptions(keys=(("v",),)), TableOptions(adopt=True)
    find = under_present_names
    assert find({"public.a": keyed, "public.x": other}, [rel]) == {
        "public.c": keyed,
        "public.x": other,
    }
    assert find({"public.a": other, "public.b": keyed}, [rel]) == {
        "public.a": other,
        "public.c": keyed,
    }
    assert find({"public.c": keyed, "public.b": other}, [rel]) == {
        "public.c": keyed,
        "public.b": other,
    }
    assert find({"public.a": keyed}, [table(store, "d")]) == {"public.a": keyed}


def test_an_entry_belongs_to_the_table_that_has_the_name(store: CatalogStore) -> None:
    """A log that is renamed, and made again under its name."""
    rels = [table(store, "log_old", former_names=("public.log",)), table(store, "log")]
    tables = {"public.log": TableOptions(keys=(("v",),))}
    assert under_present_names(tables, rels) == tables


def test_a_lake_table_that_kept_its_name_has_it_in_the_options(store: CatalogStore) -> None:
    rel = table(store, "b", lake_table="a", former_names=("public.a",))
    assert under_present_names({}, [rel]) == {"public.b": TableOptions(to=("public", "a"))}
    mapped = {"public.a": TableOptions(to=("lake", "x"))}
    elsewhere = replace(rel, lake_schema="lake", lake_table="x")
    assert under_present_names(mapped, [elsewhere]) == {"public.b": mapped["public.a"]}


@pytest.mark.parametrize(
    ("changes", "options", "settings", "now", "some_day"),
    [
        ({}, {}, {}, True, True),
        ({}, {"on_rename": "keep"}, {"on_rename": "suspend"}, True, True),
        ({}, {}, {"on_rename": "suspend"}, False, False),
        ({}, {"on_schema_change": "stop"}, {}, False, False),
        ({}, {"shared": True}, {}, False, False),
        ({"remote_relid": None}, {}, {}, False, False),
        ({"other_relid": 4}, {}, {}, False, False),
        ({"srsubstate": SubRelState.INIT}, {}, {}, False, True),
        ({"srsubstate": SubRelState.DATASYNC}, {}, {}, False, True),
        ({"suspend_time": 1}, {}, {}, False, False),
        ({"suspend_time": 1, "resuming": True}, {}, {}, False, True),
    ],
)
def test_which_tables_follow(
    changes: dict[str, Any],
    options: dict[str, Any],
    settings: dict[str, Any],
    now: bool,
    some_day: bool,
) -> None:
    """By the apply worker, and by any worker: a sync worker renames before the copy."""
    sub = Subscription("s", "", ("p",), tables={"public.a": TableOptions(**options)})
    names = ("public", "a", "public", "a")
    rel = SubscriptionRel(1, 2, SubRelState.READY, None, *names, remote_relid=3)
    rel = replace(rel, **changes)
    assert follows_rename(sub, rel, Settings(**settings)) is now
    assert is_followed(sub, rel, Settings(**settings)) is some_day


def test_the_file_under_a_noted_name_is_not_forgotten_as_that_of_a_dropped_table(
    store: CatalogStore,
) -> None:
    rel = table(store, "a")
    store.put_lake_durable([("public", "a", "file-7")])
    store.note_rename(rename(rel, "b"), rel)
    store.forget_lake_durable("public", "b", "file-7")
    assert ("public", "b", "file-7") in store.lake_durable()
    store.finish_rename(rename(rel, "b"))
    store.forget_lake_durable("public", "b", "file-7")
    assert store.lake_durable() == []
