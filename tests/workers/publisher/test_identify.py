"""Meeting the publisher: what is asked, what is stored, and who comes first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from catalog.errcodes import ObjectNotInPrerequisiteState, ProtocolViolation, ReplicationError
from catalog.pg_lsn import LSN
from catalog.pg_subscription import Subscription
from tests.workers.subscribed import Subscribed
from workers.apply.reload import reread_subscription
from workers.process.worker_exit import WorkerExit
from workers.publisher.identify import check_own_server, check_same_publisher, identify_publisher
from workers.publisher.interfaces import Row, SystemIdentity

SERVER = SystemIdentity("1", 1, LSN(1000), "shop", 16384)


@dataclass(slots=True)
class ServerTwin:
    """A publisher whose slot stands at 400; ``meanwhile`` happens after it was asked."""

    identity: SystemIdentity = SERVER
    content: str | ReplicationError = ""
    meanwhile: Callable[[], object] = lambda: None
    asked: list[int] = field(default_factory=list)
    server_version: int = 18

    def identify_system(self) -> SystemIdentity:
        return self.identity

    def timeline_history(self, tli: int) -> str:
        self.asked.append(tli)
        if isinstance(self.content, ReplicationError):
            raise self.content
        return self.content

    def exec(self, sql: str) -> list[Row]:
        self.meanwhile()
        validity = ("reserved", None, "false")
        return [("pgoutput", "logical", "shop", "f", None, str(LSN(400)), "shop", *validity)]


def left(world: Subscribed, **columns: object) -> Subscription:
    """The subscription, last seen on timeline 1 of system 1 and confirmed up to 500."""
    known = {"sysid": "1", "timeline": 1, "datoid": 16384, "max_flush_lsn": LSN(500), **columns}
    return world.store.update_subscription(world.sub.oid, **known)


def test_at_first_everything_is_remembered(world: Subscribed) -> None:
    sub = left(world, sysid=None, timeline=None, datoid=None, max_flush_lsn=LSN(0))
    met, _ = identify_publisher(ServerTwin(), world.store, sub, LSN(0))
    assert (met.sysid, met.timeline, met.datoid, met.max_flush_lsn) == ("1", 1, 16384, 400)
    assert world.store.subscription(sub.oid) == met


def test_what_somebody_else_changes_meanwhile_is_not_taken_for_known(world: Subscribed) -> None:
    """The worker has a writer and a connection of before; its first turn is to find a change."""
    sub = left(world, timeline=None)

    def altered() -> None:
        world.store.update_subscription(sub.oid, subslotname="other")

    met, _ = identify_publisher(ServerTwin(meanwhile=altered), world.store, sub, LSN(500))
    assert met == replace(sub, timeline=1)
    stored = world.store.subscription(sub.oid)
    assert stored == replace(met, subslotname="other")
    with pytest.raises(WorkerExit, match="has changed: subslotname"):
        reread_subscription(world.store, met)


def test_the_same_again_changes_nothing(world: Subscribed) -> None:
    conn, sub = ServerTwin(), left(world)
    version = world.store.data_version()
    assert identify_publisher(conn, world.store, sub, LSN(500)) == (sub, SERVER.xlogpos)
    assert (conn.asked, world.store.data_version()) == ([], version)


def test_an_older_data_directory_takes_the_database_that_it_meets_first(world: Subscribed) -> None:
    sub = left(world, datoid=None)
    met, _ = identify_publisher(ServerTwin(), world.store, sub, LSN(500))
    assert met == replace(sub, datoid=16384) == world.store.subscription(sub.oid)
    with pytest.raises(ObjectNotInPrerequisiteState, match="another database"):
        identify_publisher(ServerTwin(replace(SERVER, datoid=5)), world.store, met, LSN(500))
    assert world.store.subscription(sub.oid) == met


def test_a_timeline_that_goes_on_is_remembered(world: Subscribed) -> None:
    conn = ServerTwin(replace(SERVER, timeline=3), "1\t0/1F4\tx\n2\t0/300\ty\n")
    met, behind = identify_publisher(conn, world.store, left(world), LSN(500))
    assert (conn.asked, met.timeline, behind) == ([3], 3, SERVER.xlogpos)
    assert world.store.subscription(met.oid) == met


@pytest.mark.parametrize(
    "content",
    ["1\t0/1F3\tx\n", "2\t0/300\ty\n", "", ReplicationError("no such file", sqlstate="58P01")],
)
def test_one_that_does_not_is_not(world: Subscribed, content: str | ReplicationError) -> None:
    conn = ServerTwin(replace(SERVER, timeline=3), content)
    sub = left(world)
    with pytest.raises(ObjectNotInPrerequisiteState):
        identify_publisher(conn, world.store, sub, LSN(500))
    assert world.store.subscription(sub.oid) == sub


def test_a_history_that_cannot_be_read(world: Subscribed) -> None:
    conn = ServerTwin(replace(SERVER, timeline=3), "nonsense")
    with pytest.raises(ProtocolViolation):
        identify_publisher(conn, world.store, left(world), LSN(500))
    conn.content = ReplicationError("the server is shutting down", sqlstate="57P01")
    with pytest.raises(ReplicationError, match="shutting down"):
        identify_publisher(conn, world.store, left(world), LSN(500))


def test_an_s_that_is_stored_meanwhile_is_seen(world: Subscribed) -> None:
    """A sync worker on the old server finished beyond the switch, after we had looked."""
    sub, rel = left(world), world.rel("a")

    def finished() -> None:
        world.store.update_rel(sub.oid, rel.srrelid, lake_lsn=LSN(600))

    conn = ServerTwin(replace(SERVER, timeline=2), "1\t0/1F4\tx\n", finished)
    with pytest.raises(ObjectNotInPrerequisiteState, match="behind what this subscription") as got:
        identify_publisher(conn, world.store, sub, LSN(500))
    assert "from 0/1F4 to 0/258" in (got.value.detail or "")
    assert world.store.subscription(sub.oid) == sub


def test_an_s_beyond_what_the_server_had_when_it_answered_is_no_gap(world: Subscribed) -> None:
    sub, rel = left(world), world.rel("a")

    def finished() -> None:
        world.store.update_rel(sub.oid, rel.srrelid, lake_lsn=LSN(1100))

    conn = ServerTwin(meanwhile=finished)
    assert identify_publisher(conn, world.store, sub, LSN(500)) == (sub, SERVER.xlogpos)


@pytest.mark.parametrize("changes", [{"timeline": 2}, {"systemid": "2"}, {"datoid": 5}])
def test_a_sync_worker_that_reached_another_server(
    world: Subscribed, changes: dict[str, object]
) -> None:
    sub = left(world)
    check_own_server(ServerTwin(), sub)
    check_own_server(ServerTwin(), replace(sub, datoid=None))
    with pytest.raises(WorkerExit, match="its connection reached timeline"):
        check_own_server(ServerTwin(replace(SERVER, **changes)), sub)  # type: ignore[arg-type]  # fields by name


def test_a_copy_belongs_to_the_world_it_was_made_in(world: Subscribed) -> None:
    sub = left(world)
    check_same_publisher(sub, sub)
    check_same_publisher(replace(sub, datoid=None), sub)  # of an older data directory, known since
    for other in (replace(sub, timeline=2), replace(sub, sysid="2"), replace(sub, datoid=5), None):
        with pytest.raises(WorkerExit):
            check_same_publisher(sub, other)
