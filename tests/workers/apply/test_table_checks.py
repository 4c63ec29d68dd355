"""A table that gets another name, another relation under its name, or an altered key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import SubRelState
from tests.workers.subscribed import FINGERPRINT, Subscribed
from tests.workers.transactions import batch, relation, row
from workers.lake.table import LakeColumn, LakeIdent
from workers.proto.messages import Delete, Insert, Message, Relation, Truncate
from workers.publisher.fingerprint import (
    KeyColumn,
    PublishedTable,
    key_digest,
    published_as,
    stored_key_digest,
    with_key_digest,
)

A = relation(1, "a", "id", "v")


B = relation(2, "b", "id", "v")


MOVED = relation(1, "moved", "id", "v")


ANOTHER = relation(3, "a", "id", "v")


@pytest.fixture
def world(world: Subscribed) -> Subscribed:
    for name, relid in (("a", 1), ("b", 2)):
        world.store.update_rel(world.sub.oid, world.rel(name).srrelid, remote_relid=relid)
    return world


def insert(relid: int, key: int) -> Insert:
    return Insert(relid, row(str(key), "0"))


def keys(world: Subscribed, name: str) -> list[int]:
    return [found[0] for found in world.rows(name)]


def refused(world: Subscribed, *transactions: list[Message]) -> ReplicationError:
    with pytest.raises(ReplicationError) as caught:
        world.worker().apply_batch(batch(*transactions))
    return caught.value


@pytest.mark.parametrize("change", [insert(1, 2), Truncate(False, False, (1,))])
def test_a_renamed_table_stops_before_its_first_change(world: Subscribed, change: Message) -> None:
    """Its changes are not dropped, and what came before is applied."""
    before: list[Message] = [A, insert(1, 1)]
    others: list[list[Message]] = [[B, insert(2, n)] for n in (1, 2, 3)]
    error = refused(world, before, others[0], others[1], [MOVED, change], others[2])
    assert error.code == "55000"
    assert '"public.moved" does not exist' in error.primary
    assert '"public.a"' in (error.detail or "")
    assert f"pgsub refresh {world.sub.subname}" in (error.hint or "")
    assert (keys(world, "a"), keys(world, "b")) == ([1], [1, 2])


@pytest.mark.parametrize("apart", [True, False], ids=["transactions", "one transaction"])
def test_a_table_that_has_its_old_name_again_at_the_end(world: Subscribed, apart: bool) -> None:
    """What counts is the name that it had at each change."""
    steps: list[list[Message]] = [[A, insert(1, 1)], [MOVED, insert(1, 2)], [A, insert(1, 3)]]
    transactions = steps if apart else [[message for step in steps for message in step]]
    error = refused(world, *transactions)
    assert (error.code, keys(world, "a")) == ("55000", [1] if apart else [])


def test_a_renamed_table_s_transaction_can_be_skipped(world: Subscribed) -> None:
    """What it missed then may be a DELETE: its keys are not trusted any more."""
    both = batch([A, insert(1, 1)], [MOVED, Delete(1, "K", row("1", "0"))])
    worker = world.worker()
    worker.sub = replace(world.sub, subskiplsn=LSN(int(both.final_lsn[1])))
    worker.apply_batch(both)
    assert keys(world, "a") == [1]
    assert not world.rel("a").copied


def test_a_table_that_was_synchronised_under_its_old_name(world: Subscribed) -> None:
    """What its sync worker applied already was not applied under another name: nothing to stop."""
    late = batch([MOVED, insert(1, 1)])
    worker = world.worker()
    worker.rels["public", "a"] = replace(
        world.rel("a"), srsubstate=SubRelState.SYNCDONE, srsublsn=LSN(int(late.end_lsn[0]))
    )
    worker.apply_batch(late)
    assert keys(world, "a") == []


def test_another_relation_under_the_name_may_have_keys_that_are_there(world: Subscribed) -> None:
    """Dropped and made again: FOR ALL TABLES has one fingerprint for both."""
    world.worker().apply_batch(batch([A, insert(1, 1)]))
    error = refused(world, [A, insert(1, 1)], [ANOTHER, insert(3, 2)], [insert(3, 1)])
    assert (error.code, keys(world, "a")) == ("23505", [1, 2])
    assert (world.rel("a").copied, world.rel("a").other_relid) == (False, 3)
    moved: list[Message] = [relation(3, "moved", "id", "v"), insert(3, 4)]
    assert refused(world, [A, insert(1, 1)], [ANOTHER, insert(3, 2)], moved).code == "55000"


def test_the_relation_that_was_subscribed_is_trusted(world: Subscribed) -> None:
    world.worker().apply_batch(batch([A, insert(1, 1)]))
    assert world.rel("a").copied


def altered(typid: int, typmod: int = -1, name: str = "id") -> Relation:
    """Table a after an ALTER of the key column."""
    key, value = A.columns
    return replace(A, columns=(replace(key, name=name, typid=typid, typmod=typmod), value))


INT4 = key_digest([("id", 23, -1)])


@pytest.mark.parametrize("stored", [None, INT4], ids=["older version", "copied"])
@pytest.mark.parametrize("apart", ["workers", "batches", "transactions"])
@pytest.mark.parametrize("now", [altered(20), altered(23, 8)], ids=["type", "modifier"])
def test_a_key_column_of_another_type_may_have_values_that_are_there(
    world: Subscribed,
    caplog: pytest.LogCaptureFixture,
    now: Relation,
    apart: str,
    stored: str | None,
) -> None:
    """ALTER id TYPE bigint USING id + 1000: the publisher has 1001, and 1 is free again."""
    caplog.set_level("INFO")
    if stored is not None:
        fingerprint = with_key_digest(FINGERPRINT, stored)
        world.store.update_rel(world.sub.oid, world.rel("a").srrelid, fingerprint=fingerprint)
    steps: list[list[Message]] = [[A, insert(1, 1)], [now, insert(1, 2)], [insert(1, 1)]]
    worker = world.worker()
    if apart != "transactions":
        worker.apply_batch(batch(steps[0]))
        assert world.rel("a").copied
        assert stored_key_digest(world.rel("a").fingerprint) == INT4
        assert published_as(world.rel("a").fingerprint) == FINGERPRINT
    if apart == "workers":
        worker = world.worker()
    with pytest.raises(ReplicationError) as caught:
        worker.apply_batch(batch(*steps))
    assert (caught.value.code, keys(world, "a")) == ("23505", [1, 2])
    assert (world.rel("a").copied, world.rel("b").copied) == (False, True)
    assert caplog.text.count("action=key_altered") == 1


def test_a_key_that_was_altered_before_the_first_change_after_the_copy(world: Subscribed) -> None:
    fingerprint = with_key_digest(FINGERPRINT, INT4)
    world.store.update_rel(world.sub.oid, world.rel("a").srrelid, fingerprint=fingerprint)
    world.put("a", (1, 0), ours=True)
    assert refused(world, [altered(20), insert(1, 1)]).code == "23505"
    assert keys(world, "a") == [1]


def test_what_does_not_concern_the_key_ends_no_trust(world: Subscribed) -> None:
    """An altered value column, and the same key announced again, by this worker and the next."""
    key, value = A.columns
    other = replace(A, columns=(key, replace(value, typid=20)))
    received = batch([A, insert(1, 1)], [other, insert(1, 2)], [A, insert(1, 3)])
    for _ in range(2):
        world.worker().apply_batch(received)
    assert keys(world, "a") == [1, 2, 3]
    assert world.rel("a").copied


def test_a_message_from_before_the_copy_ends_no_trust(world: Subscribed) -> None:
    """The copy has the rows with the new type; changes from before the copy are not applied."""
    copied = with_key_digest(FINGERPRINT, key_digest([("id", 20, -1)]))
    relid = world.rel("a").srrelid
    world.store.update_rel(world.sub.oid, relid, fingerprint=copied, floor=LSN(100))
    world.worker().apply_batch(batch([A, insert(1, 1)], [altered(20), insert(1, 2)]))
    assert keys(world, "a") == [2]
    assert world.rel("a").copied


SHAPES, LABELS, BOXES, TEXTS = 20001, 20002, 1020, 1009


def with_list(world: Subscribed, typid: int) -> Relation:
    """Table a with a list column v in the lake, and of an array type on the publisher."""
    strings = pa.list_(pa.field("element", pa.string()))
    columns = (LakeColumn("id", pa.int32()), LakeColumn("v", strings))
    world.lake.tables[LakeIdent("public", "a")].columns = columns
    key, value = A.columns
    return replace(A, columns=(key, replace(value, typid=typid)))


@pytest.mark.parametrize(("typid", "delimiter"), [(SHAPES, ":"), (BOXES, ";")])
def test_a_list_gets_no_array_without_commas(world: Subscribed, typid: int, delimiter: str) -> None:
    """{1,2:3,4} would be a list of three; what came before is applied, and nothing of it."""
    world.delimiters = {SHAPES: ":"}
    shapes = with_list(world, typid)
    change = Insert(1, row("2", "{1,2:3,4}"))
    error = refused(world, [B, insert(2, 7)], [shapes, change])
    assert error.code == "0A000"
    assert error.primary == 'column "v" of lake table "public.a" cannot be a list'
    assert f'"{delimiter}"' in (error.detail or "")
    assert (keys(world, "a"), keys(world, "b")) == ([], [7])


@pytest.mark.parametrize("typid", [LABELS, TEXTS])
def test_a_list_gets_arrays_with_commas_and_a_type_is_asked_for_once(
    world: Subscribed, typid: int
) -> None:
    world.delimiters = {LABELS: ","}
    labels = with_list(world, typid)
    worker = world.worker()
    worker.apply_batch(batch([labels, Insert(1, row("1", "{x,y}"))]))
    worker.apply_batch(batch([labels, Insert(1, row("2", "{z}"))], after=1000))
    assert world.rows("a") == [(1, ["x", "y"]), (2, ["z"])]
    assert world.asked_types == ([{LABELS}] if typid == LABELS else [])


def test_a_lock_on_another_table_ends_no_trust(
    world: Subscribed, caplog: pytest.LogCaptureFixture
) -> None:
    """What is not known now is asked again: by the next batch, and by the next worker."""
    caplog.set_level("INFO")
    asked: list[bool] = []

    def locked() -> None:
        asked.append(False)

    def free() -> dict[tuple[str, str], PublishedTable]:
        asked.append(True)
        return world.published_tables()

    worker = world.worker()
    for after, published in enumerate((locked, locked, free, free)):
        worker.checks.published = published
        message: list[Message] = [insert(1, after)] if after else [A, insert(1, after)]
        worker.apply_batch(batch(message, after=100 * after))
        assert world.rel("a").copied
    assert (asked, keys(world, "a")) == ([False, False, True], [0, 1, 2, 3])
    assert caplog.text.count("action=not_compared") == 1
    assert "action=republished" not in caplog.text


@pytest.mark.parametrize("batches", [1, 2])
def test_keys_are_looked_up_while_it_is_not_known_how_a_table_is_published(
    world: Subscribed, batches: int
) -> None:
    world.put("a", (1, 0), ours=True)
    worker = world.worker()
    worker.checks.published = lambda: None
    steps: list[list[Message]] = [[A, insert(1, 2)], [insert(1, 1)]]
    both = batch(*steps)
    if batches == 2:
        worker.apply_batch(both.part(0, 1))
    with pytest.raises(ReplicationError) as caught:
        worker.apply_batch(both if batches == 1 else both.part(1, 2))
    assert (caught.value.code, keys(world, "a")) == ("23505", [1, 2])


def test_a_change_under_a_lock_is_seen_when_the_lock_is_gone(world: Subscribed) -> None:
    worker = world.worker()
    worker.checks.published = lambda: None
    worker.apply_batch(batch([A, insert(1, 1)]))
    world.published["public", "a"] = "iudt- @2"
    worker.checks.published = world.published_tables
    with pytest.raises(ReplicationError) as caught:
        worker.apply_batch(batch([insert(1, 1)], after=100))
    assert caught.value.code == "23505"
    assert not world.rel("a").copied


def test_the_digest_of_a_key_is_computed_once_for_a_relation(
    world: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    digested: list[object] = []

    def digest(key: Iterable[KeyColumn]) -> str:
        digested.append(key)
        return key_digest(key)

    monkeypatch.setattr("workers.apply.key_under_full.key_digest", digest)
    wide = relation(1, "a", "id", "v", key="id")
    worker = world.worker()
    for n in range(3):
        new = replace(wide, columns=wide.columns) if n else wide  # equal, another object
        worker.apply_batch(batch([new, Insert(1, row(str(n), "0"))], after=100 * n))
    assert len(digested) <= 1
