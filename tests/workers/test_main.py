"""How a worker process ends that never got to its work."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.errcodes import ConnectionFailure, ObjectInUse, ReplicationError
from catalog.store_sqlite import CatalogStore
from workers import main as worker

ARGV = ["apply", "--subid", "7", "--relid", "0", "--slot", "2", "--generation", "3"]


pytestmark = pytest.mark.usefixtures("quiet_afterwards")


class Link:
    """A launcher's socket that fails at one of the two first calls."""

    def __init__(self, at: str, error: Exception) -> None:
        self.at, self.error = at, error

    def connect(self, *_: object) -> Link:
        self._reach("connect")
        return self

    def attach(self) -> None:
        self._reach("attach")

    def _reach(self, call: str) -> None:
        if call == self.at:
            raise self.error


def log_of(data_dir: Path, monkeypatch: pytest.MonkeyPatch, link: Link) -> str:
    monkeypatch.setattr(worker, "LauncherLink", link)
    assert worker.main([*ARGV, "--data-dir", str(data_dir)]) == worker.EXIT_ERROR
    text = (data_dir / "log" / "pgsub.log").read_text()
    assert "Traceback" not in text
    return text


@pytest.mark.parametrize(
    ("at", "error", "said"),
    [
        ("connect", ConnectionFailure("the launcher is gone"), "08006 the launcher is gone"),
        ("attach", ObjectInUse("worker slot 2 is not waiting"), "55006 worker slot 2"),
        ("attach", KeyError("worker"), "XX000 unexpected KeyError at test_main.py"),
    ],
)
def test_an_error_before_the_work_begins_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str, error: Exception, said: str
) -> None:
    text = log_of(tmp_path, monkeypatch, Link(at, error))
    assert f"ERROR:  action=error subid=7 relid=0 sqlstate={said}" in text


def test_a_catalog_that_cannot_be_opened_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "catalog.db").write_text("this is no database, whatever its name says")
    text = log_of(tmp_path, monkeypatch, Link("nowhere", ReplicationError("")))
    assert "sqlstate=58030 could not use the catalog" in text


def test_settings_of_another_version_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CatalogStore.open(tmp_path)
    store.put_settings({"settings": {"nosuch": "secret value"}})
    store.close()
    text = log_of(tmp_path, monkeypatch, Link("nowhere", ReplicationError("")))
    assert "XX000 unexpected ValidationError" in text
    assert "secret" not in text
