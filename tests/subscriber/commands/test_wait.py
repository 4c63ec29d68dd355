import dataclasses
from collections.abc import Callable, Iterator

import pytest

from catalog.errcodes import ObjectNotInPrerequisiteState, ReplicationError
from catalog.pg_lsn import LSN
from catalog.pg_subscription import SubCreate, Subscription
from catalog.pg_subscription_rel import Setter, SubRelState, SubscriptionRel
from catalog.store_sqlite import CatalogStore
from subscriber.commands.wait import wait_for_catchup
from workers.process.launcher_client import LauncherStatus
from workers.process.worker_slots import LogicalRepWorker, WorkerType

TARGET = LSN(500)


@pytest.fixture
def store() -> Iterator[CatalogStore]:
    store = CatalogStore.open(":memory:")
    sub = store.insert_subscription(
        Subscription("mysub", "host=db", ("pub",), subuuid="u", subcreate=SubCreate.READY)
    )
    store.insert_rel(SubscriptionRel(sub.oid, 0, SubRelState.INIT, None, "s", "a", "s", "a"))
    yield store
    store.close()


def launcher(*flushed: int) -> LauncherStatus:
    workers = tuple(
        LogicalRepWorker(0, 1, WorkerType.APPLY, 16384, flush_lsn=LSN(lsn)) for lsn in flushed
    )
    return LauncherStatus(1, 0, "running", None, None, workers)


def turns(*steps: Callable[[], None]) -> Callable[[float], None]:
    """What happens between two looks, one step each; an assertion error if they run out."""
    left = list(steps)

    def pause(_seconds: float) -> None:
        assert left, "it waits for ever"
        left.pop(0)()

    return pause


def make_ready(store: CatalogStore) -> None:
    (rel,) = store.rels(16384)
    store.set_rel_state(16384, rel.srrelid, SubRelState.DATASYNC, None, Setter.TABLESYNC)
    store.set_rel_state(16384, rel.srrelid, SubRelState.SYNCDONE, LSN(1), Setter.TABLESYNC)
    store.set_rel_state(16384, rel.srrelid, SubRelState.READY, LSN(1), Setter.APPLY)


def test_waits_for_tables_and_for_the_position(store: CatalogStore) -> None:
    answers = [launcher(500), launcher(500), launcher(400), launcher(), launcher(501)]
    asked: list[Subscription] = []

    def position(sub: Subscription) -> LSN:
        asked.append(sub)
        return TARGET

    def nothing() -> None:
        return

    pause = turns(lambda: make_ready(store), nothing, nothing)
    reached = wait_for_catchup("mysub", store, lambda: answers.pop(0), position, pause=pause)
    assert (reached, answers, len(asked)) == (TARGET, [], 1)


def test_timeout(store: CatalogStore) -> None:
    with pytest.raises(ReplicationError, match="timed out waiting") as caught:
        wait_for_catchup("mysub", store, lambda: launcher(400), lambda _: TARGET, timeout=0)
    assert caught.value.code == "57014"
    assert caught.value.detail == "It is durable up to 0/190. Tables not ready: s.a (i)."


def test_no_launcher(store: CatalogStore) -> None:
    with pytest.raises(ObjectNotInPrerequisiteState, match="no launcher is running") as caught:
        wait_for_catchup("mysub", store, lambda: None, lambda _: TARGET)
    assert "pgsub run" in (caught.value.hint or "")


def test_launcher_ends_meanwhile(store: CatalogStore) -> None:
    answers: list[LauncherStatus | None] = [launcher(1), launcher(1), None]
    with pytest.raises(ObjectNotInPrerequisiteState, match="no launcher is running"):
        wait_for_catchup(
            "mysub", store, lambda: answers.pop(0), lambda _: TARGET, pause=lambda _: None
        )


def test_disabled(store: CatalogStore) -> None:
    pause = turns(lambda: _disable(store))
    with pytest.raises(ObjectNotInPrerequisiteState, match="is not enabled"):
        wait_for_catchup("mysub", store, lambda: launcher(1), lambda _: TARGET, pause=pause)


def _disable(store: CatalogStore) -> None:
    store.update_subscription(16384, subenabled=False)


def test_unknown(store: CatalogStore) -> None:
    with pytest.raises(ReplicationError) as caught:
        wait_for_catchup("nobody", store, lambda: launcher(1), lambda _: TARGET)
    assert caught.value.code == "42704"


def test_a_table_that_joins_is_waited_for(store: CatalogStore) -> None:
    make_ready(store)
    (rel,) = store.rels(16384)

    def join() -> None:
        new = dataclasses.replace(rel, srsubstate=SubRelState.INIT, srsublsn=None, relname="b")
        store.insert_rel(dataclasses.replace(new, lake_table="b"))

    answers = [launcher(1), launcher(1), launcher(500)]
    with pytest.raises(ReplicationError, match="timed out"):
        wait_for_catchup(
            "mysub",
            store,
            lambda: answers.pop(0) if len(answers) > 1 else answers[0],
            lambda _: TARGET,
            timeout=0.05,
            pause=lambda _: join() if len(store.rels(16384)) == 1 else None,
        )


def test_a_suspended_table_is_not_waited_for(store: CatalogStore) -> None:
    """It never catches up by itself; what is being copied again does."""
    make_ready(store)
    (rel,) = store.rels(16384)
    store.update_rel(16384, rel.srrelid, suspend_time=1, suspend_sqlstate="22003")
    with pytest.raises(ObjectNotInPrerequisiteState) as caught:
        wait_for_catchup("mysub", store, lambda: launcher(500), lambda _: TARGET)
    assert caught.value.primary == 'table "s.a" of subscription "mysub" is suspended'
    assert "pgsub resume mysub s.a" in (caught.value.hint or "")
    store.update_rel(16384, rel.srrelid, resuming=True)
    assert wait_for_catchup("mysub", store, lambda: launcher(500), lambda _: TARGET) == TARGET
