import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog.errcodes import ConnectionFailure, ObjectNotInPrerequisiteState
from catalog.store_sqlite import CatalogStore
from config.lake import hint_beside
from config.load import Config, from_stored
from subscriber.commands import lake_access
from subscriber.commands.lake_access import CommandLake
from tests.subscriber.silent_lake import SilentLake
from workers.lake.connect.lake_url import COMMIT_SERVICE
from workers.lake.table import LakeIdent
from workers.process.launcher_client import LauncherStatus

CODE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job has it ignored
from subscriber.cli import main
sys.exit(main())
"""
IDENTS = [LakeIdent("public", "a"), LakeIdent("public", "b")]


@pytest.fixture
def store() -> Iterator[CatalogStore]:
    store = CatalogStore.open(":memory:")
    yield store
    store.close()


def launcher(url: str | None, phase: str = "starting") -> LauncherStatus:
    return LauncherStatus(1, 0, phase, url, None, ())


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_access, "LAKE_WAIT_POLL_SECONDS", 0.0)


def config(**sections: object) -> Config:
    return from_stored(sections)


def test_a_lake_that_was_never_used_is_not_started(store: CatalogStore, tmp_path: Path) -> None:
    lake = CommandLake(tmp_path, store, config())
    assert lake.tables(IDENTS) == [None, None]
    lake.close()


@pytest.mark.parametrize("sections", [{"lake": {"catalog": {"type": "rest"}}}, {}])
def test_any_other_lake_is_asked(
    store: CatalogStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sections: dict[str, object],
) -> None:
    if not sections:
        (tmp_path / "lake").mkdir()
        (tmp_path / "lake" / "catalog.db").touch()
    lake = CommandLake(tmp_path, store, config(**sections))
    asked: list[LakeIdent] = []

    class Destination:
        def table(self, ident: LakeIdent) -> None:
            asked.append(ident)

    monkeypatch.setattr(lake, "destination", Destination)
    assert lake.tables(IDENTS) == [None, None]
    assert sorted(asked) == IDENTS


@pytest.mark.parametrize(
    ("sections", "large", "owns", "expected"),
    [
        ({"catalog": {"type": "rest"}}, True, False, True),
        ({"catalog": {"type": "rest"}}, False, False, False),
        ({"catalog": {"type": "rest"}}, True, True, False),
        ({}, True, False, False),
    ],
)
def test_a_copy_is_expected_of_a_launcher_s_server_alone(
    store: CatalogStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sections: dict[str, object],
    large: bool,
    owns: bool,
    expected: bool,
) -> None:
    """A server of the command's own copies nothing; that of the default lake may not answer yet."""
    lake = CommandLake(tmp_path, store, config(lake=sections) if sections else config())
    if owns:
        lake.keep_launchers_out()
    told: list[bool] = []

    class Destination:
        def expect_copy(self) -> None:
            told.append(True)

    monkeypatch.setattr(lake, "destination", Destination)
    lake.expect_copy(lambda: large)
    lake.close()
    assert told == [True] * expected


def test_remote_and_given_urls(store: CatalogStore, tmp_path: Path) -> None:
    remote = config(spark={"remote": "sc://cluster:15002"})
    assert CommandLake(tmp_path, store, remote).url() == "sc://cluster:15002"
    assert CommandLake(tmp_path, store, remote, "sc://given").url() == "sc://given"


def test_what_writes_has_the_commit_service(
    store: CatalogStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query goes to the Spark server alone, and starts nothing."""
    lake_of = {"catalog": {"type": "rest"}}
    spark = {"remote": "sc://cluster:15002", "commit_service": "on"}
    sections = {"spark": spark, "lake": lake_of}
    beside = f"sc://cluster:15002/;{COMMIT_SERVICE}=1.s"
    lake = CommandLake(tmp_path, store, config(**sections))
    monkeypatch.setattr(lake_access, "_ping", lambda _url: None)
    answers(monkeypatch, None)
    assert lake.answering_url() == "sc://cluster:15002"
    probed: list[str] = []
    monkeypatch.setattr("workers.lake.iceberg.catalog_probe.probe_catalog", probed.append)
    monkeypatch.setattr(lake, "_start", lambda: beside)
    lake.probe()
    answers(monkeypatch, launcher(f"{beside}2", "running"))
    running = CommandLake(tmp_path, store, config(**sections))
    running.probe()
    without = {"remote": "sc://cluster:15002"}
    CommandLake(tmp_path, store, config(lake=lake_of, spark=without)).probe()
    assert probed == [beside, f"{beside}2", "sc://cluster:15002"]


def answers(monkeypatch: pytest.MonkeyPatch, *statuses: LauncherStatus | None) -> None:
    """What the launcher says, one after the other; the last goes on."""
    left = list(statuses)
    monkeypatch.setattr(
        lake_access, "query_launcher", lambda _: left.pop(0) if len(left) > 1 else left[0]
    )


@pytest.mark.usefixtures("no_pause")
def test_waits_for_the_server_of_a_launcher(
    store: CatalogStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_access, "WAIT_NOTICE_SECONDS", -1.0)
    answers(monkeypatch, launcher(None), launcher(None), launcher("sc://localhost:1"))
    told: list[str] = []
    lake = CommandLake(tmp_path, store, config(), on_wait=told.append)
    assert lake.url() == "sc://localhost:1"
    assert told == ["waiting for the launcher's lake server to start"]


@pytest.mark.parametrize(
    ("phase", "limit"),
    [("starting", "LAKE_FIRST_START_SECONDS"), ("running", "LAKE_RESTART_SECONDS")],
)
def test_launcher_whose_lake_does_not_come_up(
    store: CatalogStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    phase: str,
    limit: str,
) -> None:
    answers(monkeypatch, launcher(None, phase))
    monkeypatch.setattr(lake_access, limit, -1.0)
    with pytest.raises(ConnectionFailure, match="lake server is not running") as caught:
        CommandLake(tmp_path, store, config()).url()
    assert "log/lake-server.log" in (caught.value.hint or "")


@pytest.mark.usefixtures("no_pause")
def test_the_server_of_a_launcher_that_is_ending_is_not_used(
    store: CatalogStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, launcher("sc://localhost:1", "stopping"), None)
    lake = CommandLake(tmp_path, store, config())
    monkeypatch.setattr(lake, "_start", lambda: "sc://of our own")
    assert lake.url() == "sc://of our own"


@pytest.mark.usefixtures("no_pause")
def test_a_server_that_dies_is_not_sent_a_query(
    store: CatalogStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher names the dead server until it has noticed."""
    dead = launcher("sc://127.0.0.1:1", "running")
    with SilentLake(releases=True) as alive:
        answers(monkeypatch, dead, dead, launcher(None, "running"), launcher(alive.url, "running"))
        assert CommandLake(tmp_path, store, config()).answering_url() == alive.url


def test_a_server_that_hangs_is_told_of_in_time(
    store: CatalogStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.lake.connect.sessions.SESSION_RELEASE_SECONDS", 0.2)
    monkeypatch.setattr(lake_access, "LAKE_ANSWER_SECONDS", 0.5)
    with SilentLake(releases=False) as hangs:
        answers(monkeypatch, launcher(hangs.url, "running"))
        with pytest.raises(ConnectionFailure, match="the lake server does not answer") as caught:
            CommandLake(tmp_path, store, config()).answering_url()
    assert "DEADLINE_EXCEEDED" in (caught.value.detail or "")
    assert "log/lake-server.log" in (caught.value.hint or "")


def test_a_remote_server_that_is_not_there(store: CatalogStore, tmp_path: Path) -> None:
    lake = CommandLake(tmp_path, store, config(spark={"remote": "sc://127.0.0.1:1"}))
    with pytest.raises(ConnectionFailure, match="the lake server does not answer") as caught:
        lake.answering_url()
    assert "spark.remote" in (caught.value.hint or "")


def test_ctrl_c_ends_a_query(store: CatalogStore, tmp_path: Path) -> None:
    with SilentLake(releases=True) as lake:
        kept = CatalogStore.open(tmp_path)
        kept.put_settings({"spark": {"remote": lake.url}})
        kept.close()
        command = subprocess.Popen(
            [sys.executable, "-c", CODE, "--data-dir", str(tmp_path), "sql", "SELECT 1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert lake.called.wait(60)
        command.send_signal(signal.SIGINT)
        out, err = command.communicate(timeout=15)
    assert (command.returncode, out) == (1, "")
    assert err == "ERROR:  57014: canceling command due to user request\n"


def test_tables_are_made_by_what_is_in_force(
    store: CatalogStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by the file of a ``create``, which changes nothing of it."""
    stored = {"lake": {"format_version": 3}, "settings": {"track_commit_timestamp": True}}
    store.put_settings(stored)
    lake = CommandLake(tmp_path, store, config())
    made: dict[str, Any] = {}

    class Destination:
        def __init__(self, url: str, **given: Any) -> None:
            made.update(given, url=url)

        def close(self) -> None:
            made["closed"] = True

    monkeypatch.setattr("workers.lake.iceberg.destination.IcebergDestination", Destination)
    monkeypatch.setattr(lake, "answering_url", lambda: "sc://localhost:1")
    lake.destination()
    lake.close()
    assert (made["url"], made["closed"]) == ("sc://localhost:1", True)
    assert (made["format_version"], made["settings"].track_commit_timestamp) == (3, True)


def test_a_commit_service_that_cannot_start_names_the_way_out(
    store: CatalogStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workers.lake.server import lake_server

    def no_java(*_: object, **__: object) -> None:
        raise ObjectNotInPrerequisiteState("no Java", hint="Install one.")

    monkeypatch.setattr(lake_server.LakeServer, "start", no_java)
    answers(monkeypatch, None)
    spark = {"remote": "sc://cluster:15002", "commit_service": "on"}
    beside = CommandLake(tmp_path, store, config(spark=spark, lake={"catalog": {"type": "rest"}}))
    with pytest.raises(ObjectNotInPrerequisiteState) as caught:
        beside.probe()
    beside.close()
    assert caught.value.hint == hint_beside("Install one.")
    with pytest.raises(ObjectNotInPrerequisiteState) as caught:
        CommandLake(tmp_path, store, config()).url()
    assert caught.value.hint == "Install one."


def test_own_server_lives_and_ends_with_the_command(
    store: CatalogStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from subscriber.launcher.data_directory_lock import DataDirectoryLock
    from workers.lake.server import lake_server

    ended: list[str] = []

    class Server:
        @classmethod
        def start(cls, data_dir: Path, **options: object) -> "Server":
            assert options["pass_fds"]
            return cls()

        def ready(self) -> str:
            return "sc://localhost:2"

        def stop(self) -> None:
            ended.append("server")

    monkeypatch.setattr(lake_server, "LakeServer", Server)
    lake = CommandLake(tmp_path, store, config())
    assert (lake.url(), lake.url()) == ("sc://localhost:2", "sc://localhost:2")
    lake.close()
    assert ended == ["server"]
    DataDirectoryLock.acquire(tmp_path, wait=0).release()
