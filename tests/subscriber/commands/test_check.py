"""``pgsub check``: what CREATE would refuse, with nothing created."""

from __future__ import annotations

from typing import Any

from catalog.errcodes import ReplicationError
from subscriber.commands.check import Checked, check_subscription
from tests.subscriber.twins import Around, statement


def check(world: Around, **keys: Any) -> Checked:
    return check_subscription(statement(**keys), world.context, world.context.settings)


def test_a_password_that_is_missing_is_found_without_a_connection(world: Around) -> None:
    checked = check(world, password_env="NOT_SET_ANYWHERE")
    assert not checked.ok
    [finding] = checked.findings
    assert isinstance(finding, ReplicationError)
    assert finding.primary == 'environment variable "NOT_SET_ANYWHERE" is not set'
    assert world.store.subscriptions() == []
