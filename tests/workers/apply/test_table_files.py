"""A table that was UNLOGGED for a while has another file, and is not trusted any more."""

from __future__ import annotations

import pytest

from catalog.errcodes import ReplicationError
from tests.workers.subscribed import FINGERPRINT, Subscribed
from tests.workers.transactions import batch, relation, row
from workers.proto.messages import Insert, Message, Truncate
from workers.publisher.fingerprint import (
    TableFile,
    key_digest,
    stored_file,
    with_file,
    with_key_digest,
)

A = relation(1, "a", "id", "v")
B = relation(2, "b", "id", "v")
EMPTIED = Truncate(False, False, (1,))
COPIED = with_key_digest(FINGERPRINT, key_digest([("id", 23, -1)]))


@pytest.fixture
def world(world: Subscribed) -> Subscribed:
    for name, file in (("a", 10), ("b", 20)):
        copied = with_file(COPIED, file)
        world.store.update_rel(world.sub.oid, world.rel(name).srrelid, fingerprint=copied)
        world.files[name] = TableFile(file, 1)
    return world


def insert(relid: int, key: int) -> Insert:
    return Insert(relid, row(str(key), "0"))


def keys(world: Subscribed, name: str) -> list[int]:
    return [found[0] for found in world.rows(name)]


@pytest.mark.parametrize("apart", [True, False], ids=["workers", "one worker"])
def test_a_table_that_was_unlogged_for_a_while(
    world: Subscribed, caplog: pytest.LogCaptureFixture, apart: bool
) -> None:
    """SET UNLOGGED, DELETE of key 1, SET LOGGED, INSERT of key 1: the lake still has the key."""
    caplog.set_level("INFO")
    worker = world.worker()
    worker.apply_batch(batch([A, insert(1, 1), B, insert(2, 1)]))
    assert world.rel("a").copied
    world.files["a"] = TableFile(11, 9)
    worker = world.worker() if apart else worker
    with pytest.raises(ReplicationError) as caught:
        worker.apply_batch(batch([A, insert(1, 1)], [B, insert(2, 2)], after=100))
    assert (caught.value.code, keys(world, "a")) == ("23505", [1])
    assert (world.rel("a").copied, world.rel("b").copied) == (False, True)
    assert world.rel("a").fingerprint == with_file(COPIED, 10)  # published as before
    assert caplog.text.count("action=rewritten") == 1


@pytest.mark.parametrize("announced", [True, False])
def test_the_file_of_a_truncate_is_taken_over(world: Subscribed, announced: bool) -> None:
    worker = world.worker()
    worker.apply_batch(batch([A, insert(1, 1)]))
    world.files["a"] = TableFile(11, 2)
    emptied: list[Message] = [A, EMPTIED] if announced else [EMPTIED]
    worker.apply_batch(batch([insert(1, 2)], [*emptied, insert(1, 1)], after=100))
    worker.apply_batch(batch([A, insert(1, 2)], after=300))
    assert (keys(world, "a"), world.rel("a").copied) == ([1, 2], True)
    assert world.rel("a").fingerprint == with_file(COPIED, 11)
    world.files["a"] = TableFile(12, 3)
    world.worker().apply_batch(batch([A, insert(1, 3)], after=400))
    assert not world.rel("a").copied


def test_the_file_of_a_later_command_is_not_that_of_the_truncate(world: Subscribed) -> None:
    """The worker is late: TRUNCATE is followed by SET UNLOGGED, DELETE, SET LOGGED already."""
    world.files["a"] = TableFile(12, 3)
    late = batch([A, EMPTIED, insert(1, 1)], [B, insert(2, 1)], [A, insert(1, 1)])
    with pytest.raises(ReplicationError) as caught:
        world.worker().apply_batch(late)
    assert (caught.value.code, keys(world, "a")) == ("23505", [1])
    assert not world.rel("a").copied


def test_a_truncate_that_waits_for_the_confirmation_is_compared_later(world: Subscribed) -> None:
    """TRUNCATE under synchronous_standby_names holds the lock until the table is confirmed."""
    worker = world.worker()
    worker.checks.published = lambda: None
    worker.apply_batch(batch([A, EMPTIED, insert(1, 1)]))
    assert world.rel("a").fingerprint == with_file(COPIED, 10)
    worker.checks.published = world.published_tables
    world.files["a"] = TableFile(11, 1)
    worker.apply_batch(batch([insert(1, 2)], after=100))
    assert world.rel("a").copied
    assert stored_file(world.rel("a").fingerprint) == 11


def test_a_file_is_not_taken_over_before_the_truncate_is_applied(world: Subscribed) -> None:
    """The part fails: what precedes the TRUNCATE is tried alone, beside another file."""
    world.put("a", (1, 0), ours=True)
    world.files["a"] = TableFile(11, 2)
    too_large = Insert(1, row("5", str(2**40)))
    part = batch([A, insert(1, 1)], [EMPTIED, too_large])
    with pytest.raises(ReplicationError) as caught:
        world.worker().apply_batch(part)
    assert caught.value.code == "23505"
    assert not world.rel("a").copied


def test_the_file_of_a_copy_by_an_older_version_is_taken_over_at_first(world: Subscribed) -> None:
    world.store.update_rel(world.sub.oid, world.rel("a").srrelid, fingerprint=COPIED)
    worker = world.worker()
    worker.apply_batch(batch([A, insert(1, 1)]))
    assert world.rel("a").fingerprint == with_file(COPIED, 10)
    world.files["a"] = TableFile(11, 9)
    worker.apply_batch(batch([A, insert(1, 2)], after=100))
    assert not world.rel("a").copied
