"""What a command does with the real things when it ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.errcodes import ConnectionFailure, LakeBroken, ReplicationError, RequiredProcessGone
from catalog.store_sqlite import CatalogStore
from config.load import from_stored
from subscriber.commands import open_context
from subscriber.commands.open_context import open_command_context
from tests.subscriber.launcher_family import Family
from workers.process.launcher_client import report_broken_lake


@pytest.fixture
def store() -> Iterator[CatalogStore]:
    store = CatalogStore.open(":memory:")
    yield store
    store.close()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (LakeBroken("the lake server cannot go on"), 1),
        (RequiredProcessGone("lost the lake server"), 0),
        (ConnectionFailure("could not connect to the publisher"), 0),
    ],
)
@pytest.mark.parametrize("silent", [False, True])
def test_a_command_tells_the_launcher_of_a_broken_lake_server(
    store: CatalogStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: ReplicationError,
    told: int,
    silent: bool,
) -> None:
    """Its error is what it was, whether there is a launcher that hears it or not."""
    heard: list[Path] = []

    def hear(data_dir: Path) -> bool:
        heard.append(data_dir)
        if silent:
            raise ConnectionFailure("the launcher does not answer")
        return True

    monkeypatch.setattr(open_context, "report_broken_lake", hear)
    with (
        pytest.raises(type(error)) as caught,
        open_command_context(tmp_path, store, from_stored({})),
    ):
        raise error
    assert caught.value is error
    assert heard == [tmp_path] * told


def test_the_launcher_decides_what_becomes_of_its_lake_server(tmp_path: Path) -> None:
    """One that was started just now is believed to be sound, whoever says otherwise."""
    with Family(tmp_path / "d") as family:
        assert not report_broken_lake(family.data_dir)
        family.start()
        before = family.status()
        assert before.lake_pid is not None
        assert report_broken_lake(family.data_dir)
        assert family.status().lake_pid == before.lake_pid
