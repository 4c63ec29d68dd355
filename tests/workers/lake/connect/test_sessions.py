"""Which closed session is a fence, and which session is handed over."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from config.guc import Settings
from config.limits import SESSION_IDLE_SECONDS
from tests.fix_lake import Lake
from workers.lake.connect import sessions
from workers.lake.connect.errors import SessionClosed
from workers.lake.connect.session import LakeSession
from workers.lake.connect.sessions import Sessions
from workers.lake.effects import Orphans
from workers.lake.iceberg import destination
from workers.lake.table import Identity, LakeIdent


class Session:
    """One that was closed by the server when it was used once."""

    def __init__(self, _url: str, user_id: str, session_id: str, _conf: object) -> None:
        self.ids = (user_id, session_id)
        self.broken = self.closed_from_outside = False
        self._calls = 0
        self.used = monotonic()

    usable = LakeSession.usable

    def hear_closed(self) -> SessionClosed:
        self.broken = self.closed_from_outside = True
        return SessionClosed("lost the lake server")

    def share(self) -> None: ...

    def touch(self) -> None: ...

    def close(self) -> None: ...


def test_a_closed_session_beside_the_batches_is_no_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A removal of orphan files took longer than the server lets a session be."""
    released: list[tuple[str, str]] = []
    monkeypatch.setattr(sessions, "LakeSession", Session)
    monkeypatch.setattr(sessions.Sessions, "release", lambda _, ids: released.extend(ids))
    removals: list[Session] = []

    def remove(given: Session, *_: object, **__: object) -> Orphans:
        removals.append(given)
        if len(removals) == 1:
            raise given.hear_closed()
        return Orphans(5)

    monkeypatch.setattr(destination, "remove_orphans", remove)
    dest: Any = destination.IcebergDestination(
        "sc://nowhere",
        identity=Identity(1),
        staging_dir=Path("nowhere"),
        settings=Settings(),
        remember_session=lambda *_: None,
    )
    batches = dest._sessions.get()
    with ThreadPoolExecutor(1) as pool:
        ask = lambda: dest.remove_orphans(LakeIdent("s", "t"), owner="me", older_than=0)  # noqa: E731 - asked twice
        with pytest.raises(SessionClosed):
            pool.submit(ask).result()
        assert dest._sessions.get() is batches
        assert pool.submit(dest._sessions.get).result() is not batches
        assert pool.submit(ask).result() == Orphans(5)
    assert released == [removals[0].ids]
    batches.hear_closed()
    with pytest.raises(SessionClosed):
        dest._sessions.get()


def test_a_session_that_nobody_used_for_long_is_not_handed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server of somebody's own may be about to forget it."""
    monkeypatch.setattr(LakeSession, "share", lambda _: None)
    sessions = Sessions("sc://localhost:1", "me", lambda *_: None)
    used = sessions.get()
    used.used -= SESSION_IDLE_SECONDS
    assert sessions.release_for_reuse() is None
    used.used += SESSION_IDLE_SECONDS
    assert sessions.release_for_reuse() == used.ids


@pytest.mark.parametrize("replaced", [True, False])
def test_a_closed_session_is_a_fence_only_if_there_is_a_successor(
    monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    """A server closes sessions by itself, too."""
    asked: list[tuple[str, str]] = []

    def has_successor(ids: tuple[str, str]) -> bool:
        asked.append(ids)
        return replaced

    monkeypatch.setattr(sessions, "LakeSession", Session)
    monkeypatch.setattr(sessions.Sessions, "release", lambda _, ids: None)
    made: Any = sessions.Sessions(
        "sc://nowhere", "me", lambda *_: None, has_successor=has_successor
    )
    first = made.get()
    first.hear_closed()
    if replaced:
        for _ in range(2):
            with pytest.raises(SessionClosed, match="by its successor"):
                made.get()
    else:
        assert made.get() is not first
        assert made.get().ids != first.ids
    assert set(asked) == {first.ids}
    made.close()


@pytest.mark.spark
def test_an_id_that_was_closed_is_not_begun_again(lake_server: Lake) -> None:
    """The fence: a clone must not bring back what a successor released."""
    sessions = Sessions(lake_server.url, "sharing", lambda *ids: None)
    session = sessions.get()
    session.configure()
    sessions.release([session.ids])
    session.share()
    with pytest.raises(SessionClosed):
        session.query("SELECT 1", "reading")
    sessions.close()
