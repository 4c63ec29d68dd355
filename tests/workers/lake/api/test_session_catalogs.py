"""A session leaves no file descriptor in the server, and no line about its settings in the log."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event
from typing import Final

import pytest

from tests.fix_lake import Lake
from workers.lake.api import session_catalogs
from workers.lake.api.session_catalogs import close_catalogs_of
from workers.lake.connect.sessions import Sessions

SESSIONS: Final = 60
QUERY: Final = "SHOW NAMESPACES IN lake"

pytestmark = pytest.mark.spark


def descriptors(lake: Lake) -> int:
    """The server's open descriptors of the lake's catalog."""
    folder = Path(f"/proc/{lake.server.process.pid}/fd")
    count = 0
    for each in folder.iterdir():
        with suppress(FileNotFoundError):
            count += "catalog.db" in str(each.readlink())
    return count


def sessions(lake: Lake) -> Sessions:
    close = partial(close_catalogs_of, lake.url)
    return Sessions(lake.url, "brief", lambda *ids: None, close_catalogs=close)


def test_sixty_sessions_leave_no_descriptor(lake_server: Lake) -> None:
    def one() -> None:
        made = sessions(lake_server)
        made.get().query(QUERY, "reading")
        made.close()

    before = descriptors(lake_server)
    for _ in range(SESSIONS):
        one()
    assert descriptors(lake_server) <= before + 2
    assert " SQLConf: " not in lake_server.server.log_path.read_text()


def test_a_destination_closes_the_catalogs_of_dead_workers(lake_server: Lake) -> None:
    """SQLite keeps a closed descriptor for the next connection while another connection is open."""
    successor = lake_server.destination()

    def bury() -> int:
        dead = Sessions(lake_server.url, "brief", lambda *ids: None)
        ids = []
        for _ in range(5):
            dead._local.session = None
            dead.get().query(QUERY, "reading")
            ids.append(dead.get().ids)
        held = descriptors(lake_server)
        successor.release_sessions(ids)
        dead.close()
        return held

    assert bury() >= 5
    assert bury() == bury()
    successor.close()


def test_without_a_gateway_and_without_a_session_nothing_happens(lake_server: Lake) -> None:
    unknown = [("nobody", "00000000-0000-0000-0000-000000000000")]
    close_catalogs_of(lake_server.spark_url, unknown)
    close_catalogs_of(lake_server.url, unknown)


def test_a_catalog_that_does_not_close_holds_up_no_release(
    lake_server: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = Event()
    monkeypatch.setattr(session_catalogs, "SESSION_RELEASE_SECONDS", 0.01)
    monkeypatch.setattr(session_catalogs, "close_catalogs", lambda *_: hold.wait())
    made = sessions(lake_server)
    session = made.get()
    session.query(QUERY, "reading")
    made.close()
    hold.set()
