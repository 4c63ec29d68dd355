"""``Pgsub.reload`` waits for the file's settings, and for nothing where they are in force."""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from catalog.store_sqlite import CatalogStore
from config.load import load
from tests.harness import Pgsub

FILE: dict[str, Any] = {"subscriptions": {}, "settings": {"wal_receiver_timeout": "30s"}}
DEFAULT: dict[str, Any] = {"subscriptions": {}, "settings": {"track_commit_timestamp": "off"}}


def apply_file(pgsub: Pgsub) -> None:
    """As the launcher does after SIGHUP."""
    with closing(CatalogStore.open(pgsub.data_dir)) as store:
        store.put_settings(load(pgsub.scratch / "up.yaml").stored())


@pytest.fixture
def pgsub(tmp_path: Path) -> Pgsub:
    made = Pgsub(tmp_path / "data")
    made.file({"subscriptions": {}}, "up.yaml")
    apply_file(made)
    return made


def test_a_file_without_a_difference_is_in_force(pgsub: Pgsub) -> None:
    """No launcher runs, and none is signalled: a default is written out."""
    pgsub.reload(DEFAULT)
    assert load(pgsub.scratch / "up.yaml").settings.model_fields_set == {"track_commit_timestamp"}


def test_other_settings_are_waited_for_and_taken_back(
    pgsub: Pgsub, monkeypatch: pytest.MonkeyPatch
) -> None:
    signals: list[int] = []

    def signalled(number: int) -> None:
        signals.append(number)
        apply_file(pgsub)

    launcher = SimpleNamespace(send_signal=signalled)
    monkeypatch.setattr(Pgsub, "launcher", property(lambda _: launcher))
    pgsub.reload(FILE)
    pgsub.reload(FILE)
    assert signals == [signal.SIGHUP]
    with pgsub.settings(wal_receiver_timeout="10s"):
        assert pgsub.in_force().settings.wal_receiver_timeout == 10.0
    assert pgsub.in_force().settings.wal_receiver_timeout == 30.0
