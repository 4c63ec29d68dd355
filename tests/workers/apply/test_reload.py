"""Settings and subscriptions that change while a worker runs."""

from __future__ import annotations

import pytest

from catalog.pg_lsn import LSN
from catalog.pg_subscription import Stream as Streaming
from catalog.pg_subscription import TableOptions
from tests.workers.looping import Loop, inserts
from tests.workers.subscribed import Subscribed
from workers.apply.reload import reread_subscription
from workers.process.worker_exit import WorkerExit

CHANGED: dict[str, object] = {
    "subconninfo": "host=other",
    "subname": "renamed",
    "subslotname": "another",
    "subbinary": True,
    "substream": Streaming.OFF,
    "subpasswordrequired": False,
    "suborigin": "none",
    "subpublications": ("pub", "more"),
    "passfile": "/another",
    "password_env": "VARIABLE",
    "password_command": "print",
    "password_command_ttl": 5.0,
    "tables": {"public.a": TableOptions(on_key_conflict="error")},
}


KEPT: dict[str, object] = {
    "subskiplsn": LSN(7),
    "subdisableonerr": True,
    "subrunasowner": True,
    "subsynccommit": "local",
    "subfailover": True,
}


@pytest.mark.parametrize("column", CHANGED)
def test_a_change_that_needs_another_stream_starts_the_worker_again(
    world: Subscribed, column: str
) -> None:
    """H-37."""
    world.store.update_subscription(world.sub.oid, **{column: CHANGED[column]})
    with pytest.raises(WorkerExit, match=f"has changed: {column}"):
        reread_subscription(world.store, world.sub)


def test_another_table_s_options_do_not_end_a_copy(world: Subscribed) -> None:
    options = {"public.other": TableOptions(to=("lake", "elsewhere"))}
    world.store.update_subscription(world.sub.oid, tables=options)
    reread_subscription(world.store, world.sub, ("public", "a"))
    with pytest.raises(WorkerExit, match="has changed: tables"):
        reread_subscription(world.store, world.sub, ("public", "other"))
    with pytest.raises(WorkerExit, match="has changed: tables"):
        reread_subscription(world.store, world.sub)


@pytest.mark.parametrize("column", KEPT)
def test_a_change_that_does_not_is_taken_over(world: Subscribed, column: str) -> None:
    """H-37."""
    world.store.update_subscription(world.sub.oid, **{column: KEPT[column]})
    assert getattr(reread_subscription(world.store, world.sub), column) == KEPT[column]


def test_a_disabled_subscription_ends_the_worker(world: Subscribed) -> None:
    world.store.update_subscription(world.sub.oid, subenabled=False)
    with pytest.raises(WorkerExit, match="was disabled"):
        reread_subscription(world.store, world.sub)


def test_a_setting_the_lake_was_opened_with_starts_the_worker_again(loop: Loop) -> None:
    loop.say(batch_max_rows=1, lake_commit_workers=9)
    with pytest.raises(WorkerExit, match="lake_commit_workers"):
        loop.run(*inserts(0, 1))


def test_another_writer_starts_the_worker_again(loop: Loop) -> None:
    loop.process.lake.writer = "auto"
    loop.world.store.put_settings({"settings": {"batch_max_rows": 1}, "lake": {"writer": "spark"}})
    with pytest.raises(WorkerExit, match=r"another lake\.writer"):
        loop.run(*inserts(0, 1))


def test_a_sync_worker_goes_on_with_the_lake_it_has(loop: Loop) -> None:
    loop.process.relid = loop.world.rel("a").srrelid
    loop.process.lake.writer = "files"
    loop.say(batch_max_rows=1, lake_commit_workers=9)
    loop.run(*inserts(0, 1))
    assert loop.receiver.durable == [100]


def test_nothing_changes_without_a_change(loop: Loop) -> None:
    assert loop.process.process_config_file() == []
    loop.say(batch_max_rows=2)
    assert loop.process.process_config_file() == ["batch_max_rows"]
    assert loop.process.process_config_file() == []
