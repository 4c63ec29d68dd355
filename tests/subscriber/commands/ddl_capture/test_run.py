"""``pgsub ddl-capture NAME --execute``: what is run, and what a refusal says."""

from __future__ import annotations

import pytest

from catalog.errcodes import FeatureNotSupported, InsufficientPrivilege, ReplicationError
from subscriber.commands.create_drop import create_subscription
from subscriber.commands.ddl_capture import Action
from subscriber.commands.ddl_capture.run import run_on_publisher, script_of
from tests.subscriber.twins import Around, PublisherTwin, statement


@pytest.fixture
def sent(world: Around, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is run on the publisher of a subscription."""
    create_subscription(statement(), world.context)
    world.notices.clear()
    found: list[str] = []
    monkeypatch.setattr(PublisherTwin, "exec", lambda _twin, sql: found.append(sql))
    return found


@pytest.mark.parametrize("action", list(Action))
def test_the_script_is_run(world: Around, sent: list[str], action: Action) -> None:
    run_on_publisher("mysub", action, world.context)
    assert sent == [script_of(action)]
    assert world.publisher.connections == 0
    told = [each.hint for each in world.notices]
    assert told == (["Say ddl_capture: on under settings."] if action is Action.INSTALL else [])


def test_a_role_that_may_not_is_told_who_may(
    world: Around, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_twin: PublisherTwin, _sql: str) -> None:
        raise ReplicationError("permission denied to create event trigger", sqlstate="42501")

    monkeypatch.setattr(PublisherTwin, "exec", refuse)
    with pytest.raises(InsufficientPrivilege) as caught:
        run_on_publisher("mysub", Action.INSTALL, world.context)
    assert "rds_superuser" in (caught.value.hint or "")
    assert "pgsub ddl-capture install prints the SQL" in (caught.value.hint or "")


def test_an_old_publisher_is_refused(world: Around, sent: list[str]) -> None:
    world.publisher.server_version = 13
    with pytest.raises(FeatureNotSupported):
        run_on_publisher("mysub", Action.INSTALL, world.context)
    assert sent == []
