"""What the lake server finds before its first session comes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from catalog.errcodes import IoError, LakeBroken
from tests.fix_lake import Lake
from workers.lake.destination import LakeIdent
from workers.lake.server import LakeServer, _prepare_catalog


def test_no_session_has_to_change_the_journal_of_the_embedded_catalog(tmp_path: Path) -> None:
    """Each asks for WAL, which waits for those who read and in the end fails."""
    path = tmp_path / "catalog.db"
    _prepare_catalog(path)
    with closing(sqlite3.connect(path)) as reader, closing(sqlite3.connect(path)) as session:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM iceberg_tables").fetchone() == (0,)
        session.execute("PRAGMA busy_timeout = 0")
        assert session.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)


@pytest.mark.spark
@pytest.mark.crash  # it needs a server of its own
def test_one_that_begins_on_a_full_disk_cannot_go_on(tmp_path: Path) -> None:
    """Its driver for SQLite unpacks a library at the first use, and never again."""
    server = LakeServer.start(tmp_path, memory=1 << 30)
    try:
        lake = Lake(server, server.ready(), tmp_path).destination()
        process = psutil.Process(server.process.pid)
        process.rlimit(psutil.RLIMIT_FSIZE, (0, -1))
        with pytest.raises(IoError):
            lake.table(LakeIdent("a", "b"))
        process.rlimit(psutil.RLIMIT_FSIZE, (-1, -1))
        with pytest.raises(LakeBroken):
            lake.table(LakeIdent("a", "b"))
        lake.close()
    finally:
        server.stop()
