"""What the lake server finds before its first session comes."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psutil
import pytest
import trustme

from catalog.errcodes import ConnectionFailure, IoError, LakeBroken
from tests.fix_lake import Lake
from workers.lake.server import lake_server
from workers.lake.server.class_archive import ClassArchive
from workers.lake.server.gateway_port import GatewayServer
from workers.lake.server.lake_server import (
    OUTPUT,
    LakeServer,
    _since,
    _trust_options,
    keep_output_small,
    prepare_catalog,
)
from workers.lake.table import LakeIdent


def test_no_session_has_to_change_the_journal_of_the_embedded_catalog(tmp_path: Path) -> None:
    """Each asks for WAL, which waits for those who read and in the end fails."""
    path = tmp_path / "catalog.db"
    prepare_catalog(path)
    with closing(sqlite3.connect(path)) as reader, closing(sqlite3.connect(path)) as session:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM iceberg_tables").fetchone() == (0,)
        session.execute("PRAGMA busy_timeout = 0")
        assert session.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)


def test_java_trusts_the_authorities_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "trust.jks"
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    assert _trust_options(store) == []
    authority = tmp_path / "authority.pem"
    trustme.CA().cert_pem.write_to_path(str(authority))
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    assert _trust_options(store) == [f"-Djavax.net.ssl.trustStore={store}"]
    assert store.stat().st_size > 100


@pytest.mark.parametrize(
    ("log", "output", "detail"),
    [
        ("", "", "It left no message."),
        ("WARN one\nERROR two\nWARN three\n", "Error: four\n", "ERROR two"),
        ("WARN one\n", "Error: four\n", "Error: four"),
    ],
)
def test_one_that_ends_at_its_start_is_quoted_and_none_before_it(
    tmp_path: Path, log: str, output: str, detail: str
) -> None:
    """An earlier one has run queries: its errors may quote a row."""
    ended = subprocess.Popen([sys.executable, "-S", "-c", ""])
    ended.wait()
    files = {tmp_path / "lake-server.log": log, tmp_path / "lake-server.out": output}
    earlier = "ERROR the value 'secret' is no number\n"
    for path in files:
        path.write_text(earlier)
    path, offset = next(iter(files)), len(earlier)
    server = LakeServer(
        ended,
        path,
        "",
        ClassArchive(path, None, None),
        GatewayServer(tmp_path / "none", used=False),
        offset,
        offset,
    )
    for path, text in files.items():
        with path.open("a") as file:
            file.write(text)
    with pytest.raises(ConnectionFailure, match="ended with status 0") as error:
        server.poll_ready()
    assert error.value.detail == detail


def test_a_log_that_was_begun_anew_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "lake-server.log"
    path.write_text("one\ntwo\n")
    assert _since(path, 4) == "two\n"
    path.write_text("new\n")
    assert _since(path, 8) == "new\n"


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


def test_a_large_output_is_moved_aside_while_the_server_appends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_server, "LOG_FILE_BYTES", 10)
    keep_output_small(tmp_path)
    (tmp_path / "log").mkdir()
    path = tmp_path / "log" / OUTPUT
    with path.open("a", encoding="ascii") as out:
        out.write("short\n")
        out.flush()
        keep_output_small(tmp_path)
        assert path.read_text() == "short\n"
        out.write("long\n")
        out.flush()
        keep_output_small(tmp_path)
        assert path.read_text() == ""
        out.write("next\n")
    assert path.read_text() == "next\n"
    aside = path.with_name(f"{OUTPUT}.1")
    assert aside.read_text() == "short\nlong\n"
    assert aside.stat().st_mode & 0o777 == 0o600
