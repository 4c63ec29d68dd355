"""Questions on a second connection, to the host that streams."""

from __future__ import annotations

from typing import Any, cast

import pytest

from catalog.errcodes import ConnectionFailure, ReplicationError
from catalog.pg_subscription import Subscription
from tests.workers.publisher.scripted import ScriptedPublisher, answers
from workers.publisher import second_connection
from workers.publisher.changing_text import TextType, TextTypes
from workers.publisher.fingerprint import fetch_fingerprints
from workers.publisher.interfaces import Row
from workers.publisher.second_connection import KeptSession, ask_identities, fetch_published

SUB = Subscription("mysub", "host=a", ("p", "q"))


class Second(ScriptedPublisher):
    """A second connection, which may fail; remembers that it was closed."""

    def __init__(self, error: ReplicationError | None = None) -> None:
        identities: dict[str, list[Row]] = {"indrelid": [("5", "id", "t")]}
        super().__init__(18, answers() | identities | {"needed (relid": [], "f.files": []})
        self.error = error
        self.closed = False

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


TYPES = {16400: TextType("e", "stage", {"16402": "new"})}


class Session(ScriptedPublisher):
    """One session; ``lost`` sessions answer no question."""

    def __init__(self) -> None:
        super().__init__(18, {"text": [("3f",)], "needed (relid": [], "f.files": []})
        self.lost = False
        self.closed = False

    def exec(self, sql: str) -> list[Row]:
        if self.lost:
            raise ConnectionFailure("lost the connection to the publisher")
        return super().exec(sql)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Session]:
    """The sessions that were opened."""
    sessions: list[Session] = []

    def connect(*_: Any) -> Session:
        sessions.append(Session())
        return sessions[-1]

    monkeypatch.setattr(second_connection, "connect_beside", connect)
    return sessions


@pytest.fixture
def kept() -> KeptSession:
    return KeptSession(SUB, cast("Any", None), lambda: False)


def test_questions_for_marks_share_a_session(kept: KeptSession, opened: list[Session]) -> None:
    """The question is one of the apply worker's turns: a frozen publisher must not hold it."""
    assert [kept.text_mark(TYPES), kept.text_mark(TYPES)] == ["3f", "3f"]
    assert kept.text_types([5]) == {5: TextTypes()}
    (session,) = opened
    assert not session.closed
    kept.close()
    assert session.closed


def test_a_question_for_types_keeps_no_session(kept: KeptSession, opened: list[Session]) -> None:
    assert kept.text_types([5]) == {5: TextTypes()}
    assert [session.closed for session in opened] == [True]


def test_a_session_that_was_lost_in_between_is_opened_anew(
    kept: KeptSession, opened: list[Session]
) -> None:
    kept.text_mark(TYPES)
    opened[0].lost = True
    assert kept.text_mark(TYPES) == "3f"
    assert [session.closed for session in opened] == [True, False]


def test_a_new_session_that_fails_is_an_error(
    kept: KeptSession, opened: list[Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(*_: Any) -> Session:
        opened.append(Session())
        opened[-1].lost = True
        return opened[-1]

    monkeypatch.setattr(second_connection, "connect_beside", connect)
    with pytest.raises(ConnectionFailure):
        kept.text_mark(TYPES)
    assert [session.closed for session in opened] == [True]
