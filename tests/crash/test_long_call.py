"""A call that takes longer than the server lets a session be unused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fix_lake import Lake
from workers.lake.connect import keep_alive
from workers.lake.connect.errors import SessionClosed
from workers.lake.connect.sessions import Sessions
from workers.lake.server.lake_server import LakeServer

CONF = {
    "spark.connect.session.manager.defaultSessionTimeout": "4s",
    "spark.connect.session.manager.maintenanceInterval": "1s",
}
CALL = "SELECT java_method('java.lang.Thread', 'sleep', 15000L) AS slept FROM range(1)"


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A server that forgets a session after seconds without a request."""
    data_dir = tmp_path_factory.mktemp("impatient")
    server = LakeServer.start(data_dir, memory=768 << 20, conf=CONF)
    try:
        yield Lake(server, server.ready(), Path(data_dir))
    finally:
        server.stop()


def test_a_long_call_ends_although_the_server_forgets_sessions(
    impatient: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keep_alive, "SESSION_TOUCH_SECONDS", 1.0)
    sessions = Sessions(impatient.url, "long", lambda *ids: None)
    session = sessions.get()
    assert session.query(CALL, "waiting").num_rows == 1
    assert sessions.get() is session
    sessions.close()


def test_a_session_that_the_server_forgot_is_replaced_and_is_no_fence(impatient: Lake) -> None:
    sessions = Sessions(impatient.url, "long", lambda *ids: None, has_successor=lambda ids: False)
    session = sessions.get()
    with pytest.raises(SessionClosed) as error:
        session.query(CALL, "waiting")
    assert error.value.detail == "The server has closed the session for good."
    assert sessions.get() is not session
    assert sessions.get().query("SELECT 1", "reading").num_rows == 1
    sessions.close()
