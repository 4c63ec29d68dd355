"""The catalog's file: who may open it, transactions, and versions."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest

from catalog.errcodes import IoError, ObjectNotInPrerequisiteState
from catalog.sqlite_file import FILE_NAME, SCHEMA_VERSION, CatalogFile, read_queries, sqlite_errors


def test_the_file_is_its_owner_s_alone(tmp_path: Path) -> None:
    CatalogFile.open(tmp_path / "data").close()
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "data" / FILE_NAME).stat().st_mode & 0o777 == 0o600


def test_a_missing_catalog_is_made_only_if_it_may_be(tmp_path: Path) -> None:
    with pytest.raises(IoError) as caught:
        CatalogFile.open(tmp_path, must_exist=True)
    assert caught.value.code == "58P01"
    CatalogFile.open(tmp_path).close()
    CatalogFile.open(tmp_path, must_exist=True).close()


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(IoError, match="could not open data directory"):
        CatalogFile.open(tmp_path / "file" / "data")


def test_every_commit_is_on_disk_and_foreign_keys_hold(tmp_path: Path) -> None:
    file = CatalogFile.open(tmp_path)
    pragmas = ("journal_mode", "synchronous", "foreign_keys", "user_version")
    found = [file._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas]
    file.close()
    assert found == ["wal", 2, 1, SCHEMA_VERSION]


def test_a_file_of_another_version_is_refused(tmp_path: Path) -> None:
    CatalogFile.open(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    with pytest.raises(ObjectNotInPrerequisiteState, match="incompatible version"):
        CatalogFile.open(tmp_path)


def test_an_error_undoes_the_whole_transaction() -> None:
    file = CatalogFile.open(":memory:")
    run = file._connection.execute
    run("CREATE TABLE t (a)")
    with suppress(KeyboardInterrupt), file.transaction():
        run("INSERT INTO t VALUES (1)")
        with file.transaction():
            run("INSERT INTO t VALUES (2)")
        raise KeyboardInterrupt
    with file.transaction():
        run("INSERT INTO t VALUES (3)")
    assert [tuple(row) for row in run("SELECT a FROM t")] == [(3,)]
    file.close()


def test_the_version_of_the_data_grows_with_changes_of_any_process(tmp_path: Path) -> None:
    one, two = CatalogFile.open(tmp_path), CatalogFile.open(tmp_path)
    before = one.data_version()
    assert one.data_version() == before
    with two.transaction():
        two._connection.execute("CREATE TABLE t (a)")
    assert one.data_version() > before
    one.close()
    two.close()


def test_an_error_of_sqlite_is_an_io_error() -> None:
    with (
        pytest.raises(IoError, match='could not use the catalog "c"') as caught,
        sqlite_errors("c"),
    ):
        raise sqlite3.OperationalError("disk I/O error")
    assert caught.value.code == "58030"


def test_each_query_has_a_name_and_is_one_statement() -> None:
    assert all(sql.rstrip(";").count(";") == 0 for sql in read_queries().values())
