"""A sync worker's slot, and the sessions that may hold its name."""

from __future__ import annotations

from typing import Any, cast

import pytest

from catalog.errcodes import DuplicateObject, ObjectInUse, ReplicationError
from catalog.pg_lsn import LSN
from tests.workers.publisher.scripted import ScriptedPublisher
from workers.publisher.sync_slot import create_sync_slot, drop_sync_slot

SLOT = "pg_16384_sync_16385_7"
POINT = LSN(900)


class Publisher(ScriptedPublisher):
    """Fails to create a slot with these errors, one after the other, then succeeds."""

    def __init__(self, *errors: ReplicationError, freed: bool = True, standby: bool = False):
        answers: dict[str, list[tuple[str | None, ...]]] = {
            "pg_terminate_backend": [("t" if freed else "f",)],
            "pg_is_in_recovery": [("t" if standby else "f",)],
        }
        super().__init__(18, answers)
        self.errors = list(errors)
        self.commands: list[str] = []
        self.created: list[dict[str, Any]] = []

    def command(self, sql: str) -> None:
        self.commands.append(sql.partition(" ")[0])

    def create_slot(self, name: str, **options: Any) -> LSN:
        assert name == SLOT
        self.created.append(options)
        if self.errors:
            raise self.errors.pop(0)
        return POINT


def create(publisher: Publisher, timeout: float = 0.0) -> LSN:
    return create_sync_slot(cast("Any", publisher), SLOT, timeout)


def test_a_slot_is_created_in_the_transaction_of_the_copy() -> None:
    publisher = Publisher()
    assert create(publisher) == POINT
    assert publisher.commands == ["BEGIN"]
    assert publisher.created == [
        {"temporary": True, "snapshot": "use", "failover": False, "timeout": None}
    ]


@pytest.mark.parametrize("standby", [True, False])
def test_only_on_a_standby_the_time_is_limited(standby: bool) -> None:
    publisher = Publisher(standby=standby)
    create(publisher, timeout=30.0)
    assert publisher.created[0]["timeout"] == (30.0 if standby else None)


def test_the_name_of_a_dead_session_is_freed() -> None:
    publisher = Publisher(DuplicateObject("it exists"))
    assert create(publisher) == POINT
    assert publisher.commands == ["BEGIN", "ROLLBACK", "BEGIN"]


def test_another_error_is_passed_on() -> None:
    with pytest.raises(ReplicationError, match="no slots left"):
        create(Publisher(ReplicationError("no slots left", sqlstate="53400")))


def test_a_name_that_another_session_holds_is_refused() -> None:
    with pytest.raises(ObjectInUse, match="is in use by another session"):
        create(Publisher(DuplicateObject("it exists"), freed=False))
    with pytest.raises(ObjectInUse):
        drop_sync_slot(cast("Any", Publisher(freed=False)), SLOT)
