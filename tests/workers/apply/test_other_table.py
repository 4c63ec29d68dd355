"""Another table under the name: with ``on_error: suspend`` none of its rows comes to the lake."""

from __future__ import annotations

import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, relation, row
from workers.proto.messages import Insert, Message

A = relation(1, "a", "id", "v")
B = relation(2, "b", "id", "v")


def both(key: int) -> list[Message]:
    """A transaction that inserts a row into both tables."""
    return [A, B, Insert(1, row(str(key), "0")), Insert(2, row(str(key), "0"))]


def keys(world: Subscribed, name: str) -> list[int]:
    return [found[0] for found in world.rows(name)]


@pytest.mark.parametrize("known", [False, True], ids=["new", "told before"])
@pytest.mark.parametrize("apart", [False, True], ids=["one batch", "batches"])
def test_another_table_under_the_name_suspends_before_its_first_change(
    world: Subscribed, apart: bool, known: bool
) -> None:
    """A staging table was renamed into place: readers go on with the old rows alone."""
    world.declare("a", on_error="suspend")
    relid = world.rel("a").srrelid
    world.store.update_rel(world.sub.oid, relid, remote_relid=1, other_relid=3 if known else None)
    other: list[Message] = [relation(3, "a", "id", "v"), B, Insert(3, row("7", "0"))]
    swapped = [*other, Insert(2, row("7", "0"))]
    worker = world.worker()
    if apart:
        worker.apply_batch(batch(both(0)))
        worker.apply_batch(batch(swapped, both(1), after=100))
    else:
        worker.apply_batch(batch(both(0), swapped, both(1)))
    assert (keys(world, "a"), keys(world, "b")) == ([0], [0, 1, 7])
    found = world.rel("a")
    assert (found.suspend_sqlstate, found.suspend_lsn) == ("55000", LSN(200))
    assert found.suspend_error == (
        'table "public.a" is another one on the publisher than the one that was copied'
    )


def test_with_stop_the_worker_goes_on_and_tells(
    world: Subscribed, caplog: pytest.LogCaptureFixture
) -> None:
    """As the native subscriber does; a key of the old table is not doubled."""
    rel = world.rel("a")
    world.store.update_rel(rel.srsubid, rel.srrelid, remote_relid=1)
    other = relation(3, "a", "id", "v")
    worker = world.worker()
    worker.apply_batch(batch(both(0), [other, Insert(3, row("7", "0"))]))
    assert (keys(world, "a"), world.rel("a").other_relid) == ([0, 7], 3)
    assert not world.rel("a").suspended
    assert caplog.text.count("action=other_relation") == 1
    with pytest.raises(ReplicationError, match="insert_exists"):
        worker.apply_batch(batch([Insert(3, row("0", "5"))], after=200))
