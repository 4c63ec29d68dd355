"""``pgsub check``: what CREATE would refuse, with nothing created."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.errcodes import ReplicationError
from subscriber.commands import check as check_command
from subscriber.commands.check import Checked, check_subscription
from tests.subscriber.twins import Around, PublishedTable, statement


def check(world: Around, **keys: Any) -> Checked:
    return check_subscription(statement(**keys), world.context, world.context.settings)


def test_a_password_that_is_missing_is_found_without_a_connection(world: Around) -> None:
    checked = check(world, password_env="NOT_SET_ANYWHERE")
    assert not checked.ok
    [finding] = checked.findings
    assert isinstance(finding, ReplicationError)
    assert finding.primary == 'environment variable "NOT_SET_ANYWHERE" is not set'
    assert world.store.subscriptions() == []


def test_names_the_lake_or_its_readers_cannot_have_are_found(
    world: Around, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_command, "server_findings", lambda *_: ())
    columns = ("id", "tags", "tags.element", "ID")
    world.publisher.tables = {"a": PublishedTable(columns=columns, arrays=("tags",))}
    checked = check(world)
    assert not checked.ok
    assert [finding.primary for finding in checked.findings] == [
        'columns "ID", "id" of table "public.a" differ only by case',
        'column names "tags" and "tags.element" of table "public.a" exclude each other in the lake',
    ]
    assert world.publisher.slots == {}
