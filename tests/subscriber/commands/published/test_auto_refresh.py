"""``refresh: auto``: what a process of the launcher does, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from catalog.errcodes import ConnectionFailure
from catalog.pg_subscription import Refresh, TwoPhaseState
from catalog.store_sqlite import CatalogStore
from subscriber.commands.published import auto_refresh
from subscriber.commands.published.auto_refresh import main, refresh_by_itself
from subscriber.messages import notice, warning
from tests.subscriber.commands.subscribed import names, row
from tests.subscriber.twins import Around, PublishedTable
from workers.process import failpoints
from workers.process import log as server_log

PLACES = ("refresh.found", "refresh.stored", "refresh.cleaned", "refresh.reloaded")


def test_tables_join_and_leave(world: Around) -> None:
    assert row(world).refresh is Refresh.AUTO
    assert not refresh_by_itself("mysub", world.context)
    world.publisher.tables["b"] = PublishedTable()
    assert refresh_by_itself("mysub", world.context)
    assert names(world) == [("a", "i"), ("b", "i")]
    del world.publisher.tables["a"]
    assert refresh_by_itself("mysub", world.context)
    assert names(world) == [("b", "i")]
    assert not refresh_by_itself("mysub", world.context)


@pytest.mark.parametrize(
    "how", ["manual", "disabled", "no publication", "another server", "another database"]
)
def test_what_is_left_alone(world: Around, how: str) -> None:
    world.publisher.tables = {"b": PublishedTable()}
    sub, identity = row(world), world.publisher.identity
    if how == "manual":
        world.store.update_subscription(sub.oid, refresh=Refresh.MANUAL)
    elif how == "disabled":
        world.store.update_subscription(sub.oid, subenabled=False)
    elif how == "no publication":
        world.publisher.publications = ()
    elif how == "another server":
        world.publisher.identity = replace(world.publisher.identity, systemid="7")
    else:
        world.publisher.identity = replace(world.publisher.identity, datoid=7)
    assert not refresh_by_itself("mysub", world.context)
    assert names(world) == [("a", "i")]
    world.store.update_subscription(sub.oid, refresh=Refresh.AUTO, subenabled=True)
    world.publisher.publications = ("pub",)
    world.publisher.identity = identity
    assert refresh_by_itself("mysub", world.context)


def test_two_phase_commit_refuses_a_copy(world: Around) -> None:
    world.store.update_subscription(row(world).oid, subtwophasestate=TwoPhaseState.ENABLED)
    world.publisher.tables["b"] = PublishedTable()
    with pytest.raises(Exception, match="not allowed when two_phase is enabled"):
        refresh_by_itself("mysub", world.context)


@pytest.mark.parametrize("place", PLACES)
def test_a_look_that_ends_anywhere_is_made_up_for(
    world: Around, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The branch of a table that left goes, too."""
    world.lake.add("a", owner=row(world).subuuid)
    world.publisher.tables = {"b": PublishedTable()}

    def end(reached: str) -> None:
        if reached == place:
            raise ConnectionFailure(place)

    with monkeypatch.context() as failing:
        failing.setattr(failpoints, "reach", end)
        with pytest.raises(ConnectionFailure):
            refresh_by_itself("mysub", world.context)
    stored = place != "refresh.found"
    assert names(world) == [("b", "i")] if stored else [("a", "i")]
    assert refresh_by_itself("mysub", world.context) == (not stored)
    assert names(world) == [("b", "i")]
    assert world.store.leaked_branches() == []
    assert set(world.lake.unbranched) == {("a", "pgsub_")}


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (None, 0, ["INFO action=auto_refresh done", "WARNING action=auto_refresh careful"]),
        ("stays out", 1, []),
        (ConnectionFailure("no publisher"), 1, ["WARNING action=auto_refresh could not refresh"]),
        (ZeroDivisionError(), 1, ["unexpected ZeroDivisionError"]),
    ],
)
def test_the_process(
    world: Around,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception | str | None,
    status: int,
    said: list[str],
) -> None:
    @contextmanager
    def opened(*_args: Any, notify: Any, **_more: Any) -> Iterator[Around]:
        notify(notice("done"))
        notify(warning("careful", hint="Be."))
        yield world

    def refresh(name: str, _context: Any) -> bool:
        assert name == "mysub"
        if isinstance(error, Exception):
            raise error
        world.publisher.tables |= {} if error else {"b": PublishedTable()}
        return refresh_by_itself(name, world.context) or error is not None

    monkeypatch.setattr(auto_refresh, "open_command_context", opened)
    monkeypatch.setattr(auto_refresh, "refresh_by_itself", refresh)
    monkeypatch.setattr(server_log, "setup", lambda *_args: None)
    monkeypatch.setattr(server_log, "use_format", lambda _format: None)
    caplog.set_level("INFO")
    CatalogStore.open(tmp_path / "data").close()
    assert main([str(tmp_path / "data"), "mysub"]) == status
    lines = [f"{each.levelname} {each.getMessage()}" for each in caplog.records]
    for text in said:
        assert any(text in line for line in lines), lines
