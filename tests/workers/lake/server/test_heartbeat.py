"""A heartbeat answers what the server uses, and removes what nobody else can remove."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from catalog.errcodes import RequiredProcessGone
from tests.fix_lake import Lake
from workers.lake.connect.errors import SessionClosed
from workers.lake.connect.lake_url import GATEWAY
from workers.lake.connect.sessions import Sessions
from workers.lake.server import heartbeat
from workers.lake.server.heartbeat import Heartbeat

pytestmark = pytest.mark.spark


def beats(lake: Lake, url: str | None = None) -> Heartbeat:
    scratch = lake.data_dir / "lake" / "tmp"
    return Heartbeat(url or lake.url, lake.server.process.pid, scratch, str(uuid.uuid4()))


@pytest.fixture
def beating(lake_server: Lake) -> Iterator[Heartbeat]:
    made = beats(lake_server)
    yield made
    made._sessions.close()


def folders(lake: Lake) -> set[str]:
    return set(os.listdir(lake.data_dir / "lake" / "tmp" / "spark_connect_model_cache"))


def test_what_a_server_uses(beating: Heartbeat) -> None:
    health = beating.beat()
    assert 100 < health["descriptors"] < health["descriptor_limit"]
    assert 10 < health["threads"] < 1000
    assert health["sessions"] >= 1
    assert 0 <= health["heap_bytes"] < health["heap_limit_bytes"]


def test_beats_have_one_session(beating: Heartbeat) -> None:
    first = beating.beat()["sessions"]
    assert {beating.beat()["sessions"] for _ in range(3)} == {first}


def test_a_beat_closes_what_nobody_uses(
    lake_server: Lake, beating: Heartbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = Sessions(lake_server.url, "killed", lambda *ids: None)
    session = killed.get()
    session.query("SHOW NAMESPACES IN lake", "reading")
    before = beating.beat()["sessions"]
    assert folders(lake_server), "of the session from which this session was cloned"
    session.query("SELECT 1", "an hour has not passed")
    monkeypatch.setattr(heartbeat, "SESSION_FORGET_SECONDS", -60.0)
    monkeypatch.setattr(heartbeat, "MODEL_FOLDER_SECONDS", -60.0)
    assert beating.beat()["sessions"] < before
    assert folders(lake_server) == set()
    with pytest.raises(SessionClosed):
        session.query("SELECT 1", "reading")
    killed.close()


def test_without_a_gateway_spark_alone_answers(lake_server: Lake) -> None:
    spark_alone = beats(lake_server, lake_server.spark_url)
    assert set(spark_alone.beat()) == {"descriptors", "descriptor_limit", "threads"}
    spark_alone._sessions.close()


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.usefixtures("left_sockets")
def test_a_gateway_that_does_not_answer_is_no_answer(lake_server: Lake, closed_port: int) -> None:
    half = beats(lake_server, f"{lake_server.spark_url};{GATEWAY}={closed_port}.secret")
    with pytest.raises(RequiredProcessGone):
        half.beat()
    half._sessions.close()


def test_a_server_that_is_gone_is_no_answer(closed_port: int, tmp_path: Path) -> None:
    begin = partial(Heartbeat, f"sc://localhost:{closed_port}/;token=t", os.getpid(), tmp_path)
    with pytest.raises(RequiredProcessGone):
        begin(str(uuid.uuid4())).beat()
