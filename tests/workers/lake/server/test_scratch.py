"""What a start of the lake server removes, and what stays."""

from __future__ import annotations

from pathlib import Path

from workers.lake.server.scratch import clear_scratch


def test_temporary_files_of_former_servers_go(tmp_path: Path) -> None:
    for name in ("spark-0205", "blockmgr-1", "artifacts-8", "gateway", "spark_connect_model_cache"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "block").touch()
    for name in ("libzstd-jni-1.so", "python-812"):
        (tmp_path / name).touch()
    clear_scratch(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_tables_of_a_relative_warehouse_stay(tmp_path: Path) -> None:
    metadata = tmp_path / "warehouse" / "public" / "orders" / "metadata" / "v1.metadata.json"
    metadata.parent.mkdir(parents=True)
    metadata.touch()
    (tmp_path / "cat.db").touch()
    (tmp_path / "python-events").mkdir()
    clear_scratch(tmp_path)
    assert metadata.exists()
    assert (tmp_path / "python-events").exists()
    assert (tmp_path / "cat.db").exists()


def test_a_link_is_removed_and_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "row").touch()
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    (scratch / "spark-1").symlink_to(elsewhere)
    clear_scratch(scratch)
    assert (elsewhere / "row").exists()
    assert list(scratch.iterdir()) == []


def test_there_may_be_no_folder_yet(tmp_path: Path) -> None:
    clear_scratch(tmp_path / "none")
