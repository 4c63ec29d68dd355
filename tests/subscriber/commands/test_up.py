from collections.abc import Callable
from pathlib import Path

import pytest

from catalog.errcodes import DuplicateTable, ReplicationError
from subscriber.commands import up as up_module
from subscriber.commands.up import up
from subscriber.messages import print_error

FILE = """
subscriptions:
  s: {connection: host=nowhere.invalid, publication: p, with: {connect: false, slot_name: NONE}}
"""


def test_what_stops_the_file_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def launcher(
        data_dir: Path, *, config: object, apply_file: Callable[[str], None], console: bool
    ) -> int:
        """As the real one: what the file's thread raises is reported and ends the family."""
        assert console, "the log goes where standard error leads"
        try:
            apply_file("sc://nowhere")
        except ReplicationError as error:
            return print_error(error)
        return 0

    def refuse(*_: object) -> None:
        raise DuplicateTable('lake table "public.a" already exists', hint="Map it elsewhere.")

    file = tmp_path / "s.yaml"
    file.write_text(FILE)
    monkeypatch.setattr(up_module, "ApplyLauncherMain", launcher)
    monkeypatch.setattr(up_module, "_apply_file", refuse)
    assert up(tmp_path / "data", file) == 1
    said = capfd.readouterr().err
    assert said.count("already exists") == 1
    assert said.count("Map it elsewhere.") == 1
