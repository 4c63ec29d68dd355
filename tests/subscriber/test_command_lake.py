from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.errcodes import ConnectionFailure
from catalog.store_sqlite import CatalogStore
from config.load import Config, from_stored
from subscriber import command_lake
from subscriber.command_lake import CommandLake
from workers.bgworker import LauncherStatus
from workers.lake.destination import LakeIdent

IDENTS = [LakeIdent("public", "a"), LakeIdent("public", "b")]


@pytest.fixture
def store() -> Iterator[CatalogStore]:
    store = CatalogStore.open(":memory:")
    yield store
    store.close()


def launcher(url: str | None) -> LauncherStatus:
    return LauncherStatus(1, 0, "starting", url, None, ())


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


def test_remote_and_given_urls(store: CatalogStore, tmp_path: Path) -> None:
    remote = config(spark={"remote": "sc://cluster:15002"})
    assert CommandLake(tmp_path, store, remote).url() == "sc://cluster:15002"
    assert CommandLake(tmp_path, store, remote, "sc://given").url() == "sc://given"


def test_waits_for_the_server_of_a_launcher(
    store: CatalogStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [launcher(None), launcher(None), launcher("sc://localhost:1")]
    monkeypatch.setattr(command_lake, "query_launcher", lambda _: answers.pop(0))
    monkeypatch.setattr(command_lake, "_POLL", 0.0)
    assert CommandLake(tmp_path, store, config()).url() == "sc://localhost:1"


def test_launcher_whose_lake_does_not_come_up(
    store: CatalogStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_lake, "query_launcher", lambda _: launcher(None))
    monkeypatch.setattr(command_lake, "LAUNCHER_LAKE_TIMEOUT", 0.0)
    with pytest.raises(ConnectionFailure, match="lake server is not running"):
        CommandLake(tmp_path, store, config()).url()


def test_own_server_lives_and_ends_with_the_command(
    store: CatalogStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from subscriber.family_lock import FamilyLock
    from workers.lake import server

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

    monkeypatch.setattr(server, "LakeServer", Server)
    lake = CommandLake(tmp_path, store, config())
    assert (lake.url(), lake.url()) == ("sc://localhost:2", "sc://localhost:2")
    lake.close()
    assert ended == ["server"]
    FamilyLock.acquire(tmp_path, wait=0).release()
