"""A data directory under another path is refused with the remedy, and the remedy works."""

from __future__ import annotations

import shlex
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from catalog.errcodes import ReplicationError
from workers.lake.server.moved_lake import check_not_moved


def make_lake(data_dir: Path, *, at: str | None = None) -> Path:
    """A lake of one table; ``at``: where its metadata file is said to be."""
    lake = data_dir / "lake"
    file = lake / "warehouse" / "public" / "7-t-0" / "metadata" / "1.metadata.json"
    file.parent.mkdir(parents=True)
    file.touch()
    with closing(sqlite3.connect(lake / "catalog.db")) as db:
        db.execute(
            "CREATE TABLE iceberg_tables (catalog_name TEXT, table_namespace TEXT,"
            " table_name TEXT, metadata_location TEXT, previous_metadata_location TEXT)"
        )
        db.execute(
            "INSERT INTO iceberg_tables VALUES ('lake', 'public', 't', ?, NULL)",
            (at or f"file:{file}",),
        )
        db.execute("INSERT INTO iceberg_tables VALUES ('lake', 'public', 'view', NULL, NULL)")
        db.commit()
    return lake


def test_a_moved_data_directory_is_told_and_a_link_helps(tmp_path: Path) -> None:
    old, new = tmp_path / "old place", tmp_path / "new"
    check_not_moved(make_lake(old))
    old.rename(new)
    with pytest.raises(ReplicationError, match="was moved") as caught:
        check_not_moved(new / "lake")
    assert caught.value.code == "55000"
    assert f'"{old}"' in (caught.value.detail or "")
    link = shlex.split((caught.value.hint or "").partition("a link: ")[2])
    assert link == ["ln", "-s", str(new), str(old)]
    old.symlink_to(new)
    check_not_moved(new / "lake")


@pytest.mark.parametrize(
    "at", ["s3://bucket/lake/warehouse/t/1.metadata.json", "file:/gone/1.json"]
)
def test_other_missing_files_are_not_taken_for_a_move(tmp_path: Path, at: str) -> None:
    check_not_moved(make_lake(tmp_path / "data", at=at))


def test_a_lake_without_tables_is_nowhere(tmp_path: Path) -> None:
    check_not_moved(tmp_path)
    (tmp_path / "catalog.db").write_bytes(b"no database")
    check_not_moved(tmp_path)
