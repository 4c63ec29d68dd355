import importlib
from collections.abc import Callable
from pathlib import Path

import pytest

from catalog.errcodes import (
    DuplicateTable,
    FeatureNotSupported,
    IoError,
    ReplicationError,
    TwoLakes,
)
from config.load import parse
from subscriber.commands import up as up_module
from subscriber.commands.lake_access import CommandLake
from subscriber.commands.up import up
from subscriber.launcher.configuration import ApplyFile
from subscriber.messages import print_error

FILE = """
subscriptions:
  s: {connection: host=nowhere.invalid, publication: p, with: {connect: false, slot_name: NONE}}
"""


def test_what_stops_the_file_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def launcher(
        data_dir: Path, *, config: object, apply_file: ApplyFile, console: bool, look_module: str
    ) -> int:
        """As the real one: what the file's thread raises is reported and ends the family."""
        assert console, "the log goes where standard error leads"
        assert callable(importlib.import_module(look_module).main)
        try:
            apply_file("sc://nowhere", [])
        except ReplicationError as error:
            return print_error(error)
        return 0

    def refuse(*_: object, pass_fds: list[int]) -> None:
        raise DuplicateTable('lake table "public.a" already exists', hint="Map it elsewhere.")

    file = tmp_path / "s.yaml"
    file.write_text(FILE)
    monkeypatch.setattr(up_module, "ApplyLauncherMain", launcher)
    monkeypatch.setattr(up_module, "call_forked", refuse)
    assert up(tmp_path / "data", file) == 1
    said = capfd.readouterr().err
    assert said.count("already exists") == 1
    assert said.count("Map it elsewhere.") == 1


@pytest.fixture
def applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[ReplicationError], None]:
    """Applies the file twice; the second time there is a subscription, and the probe raises."""

    def apply(error: ReplicationError) -> None:
        def probe(_: CommandLake) -> None:
            raise error

        config = parse(FILE, "s.yaml")
        data_dir = tmp_path / "data"
        data_dir.mkdir()
        monkeypatch.setattr(CommandLake, "probe", probe)
        up_module._apply_file(data_dir, config, "sc://nowhere")
        up_module._apply_file(data_dir, config, "sc://nowhere")

    return apply


@pytest.mark.parametrize("error", [FeatureNotSupported("no branch"), TwoLakes("not the same")])
def test_a_catalog_that_would_lose_rows_stops_the_file(
    applied: Callable[[ReplicationError], None], error: ReplicationError
) -> None:
    with pytest.raises(type(error), match=error.primary):
        applied(error)


def test_a_store_that_is_away_stops_nothing(
    applied: Callable[[ReplicationError], None], capfd: pytest.CaptureFixture[str]
) -> None:
    applied(IoError("the store is away"))
    said = capfd.readouterr().err
    assert said.count("could not probe the lake's catalog: the store is away") == 1
