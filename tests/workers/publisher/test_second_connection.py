"""Questions on a second connection, to the host that streams."""

from __future__ import annotations

from typing import Any, cast

import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_subscription import Subscription
from config.limits import CONNECT_SECONDS
from tests.workers.publisher.scripted import ScriptedPublisher, answers
from workers.publisher import second_connection
from workers.publisher.changing_text import TextTypes
from workers.publisher.fingerprint import fetch_fingerprints
from workers.publisher.interfaces import Row
from workers.publisher.second_connection import ask_identities, ask_text_types, fetch_published

SUB = Subscription("mysub", "host=a", ("p", "q"))


class Second(ScriptedPublisher):
    """A second connection, which may fail; remembers that it was closed."""

    def __init__(self, error: ReplicationError | None = None) -> None:
        identities: dict[str, list[Row]] = {"indrelid": [("5", "id", "t")]}
        super().__init__(18, answers() | identities | {"needed (relid": [], "f.files": []})
        self.error = error
        self.closed = False
        self.patience: float | None = None

    def exec(self, sql: str) -> list[Row]:
        if self.error is not None and "pubinsert" in sql:
            raise self.error
        return super().exec(sql)

    def close(self) -> None:
        self.closed = True


def ask(monkeypatch: pytest.MonkeyPatch, conn: Second, question: Any, *more: Any) -> Any:
    monkeypatch.setattr(second_connection, "connect_beside", lambda *_: conn)
    return question(SUB, cast("Any", None), lambda: False, *more)


def test_fingerprints_are_those_of_the_first_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    conn = Second()
    assert ask(monkeypatch, conn, fetch_published) == fetch_fingerprints(Second(), ["p", "q"])
    assert "lock_timeout" in conn.asked[0]
    assert conn.closed


def test_a_table_that_is_locked_makes_no_fingerprint_known(monkeypatch: pytest.MonkeyPatch) -> None:
    conn = Second(ReplicationError("canceling statement", sqlstate="55P03"))
    assert ask(monkeypatch, conn, fetch_published) is None
    assert conn.closed


def test_another_error_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    conn = Second(ReplicationError("permission denied", sqlstate="42501"))
    with pytest.raises(ReplicationError, match="permission denied"):
        ask(monkeypatch, conn, fetch_published)
    assert conn.closed


def test_identities(monkeypatch: pytest.MonkeyPatch) -> None:
    conn = Second()
    assert ask(monkeypatch, conn, ask_identities, [5]) == {5: {"id": True}}
    assert conn.closed


def test_types_are_asked_for_with_a_limit_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The question is one of the apply worker's turns: a frozen publisher must not hold it."""
    conn = Second()
    assert ask(monkeypatch, conn, ask_text_types, [5]) == {5: TextTypes()}
    assert conn.closed
    assert conn.patience == CONNECT_SECONDS
