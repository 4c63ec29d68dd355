"""What commands ask the launcher, and what they make of its silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.errcodes import ConnectionFailure
from tests.workers.process.launcher_peer import Peer
from workers.process.launcher_client import query_launcher
from workers.process.launcher_link import LauncherLink
from workers.process.launcher_socket import (
    LOCK_FILE,
    LockInfo,
)


def test_no_launcher_no_status(tmp_path: Path) -> None:
    assert query_launcher(tmp_path) is None
    (tmp_path / LOCK_FILE).write_text("")
    assert query_launcher(tmp_path) is None
    (tmp_path / LOCK_FILE).write_bytes(LockInfo(1, tmp_path / "gone", 1).to_json())
    assert query_launcher(tmp_path) is None
    with pytest.raises(ConnectionFailure, match="the launcher is gone"):
        LauncherLink.connect(tmp_path, 0, 1, on_lost=lambda: None)


def test_a_launcher_that_does_not_answer_is_an_error(data_dir: Path, peer: Peer) -> None:
    with pytest.raises(ConnectionFailure, match="does not answer"):
        query_launcher(data_dir, timeout=0.05)
