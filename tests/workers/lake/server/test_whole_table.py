"""What is looked at to tell whether a table is whole."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.workers.lake.server.torn_tables import TornLake, cut, zeros
from workers.lake.server.whole_table import LostFileError, check_table, read_metadata


def test_a_compressed_metadata_file(tmp_path: Path) -> None:
    path = tmp_path / "00001-a.gz.metadata.json"
    path.write_bytes(gzip.compress(json.dumps({"snapshots": []}).encode()))
    assert read_metadata(f"file:{path}") == {"snapshots": []}
    cut(path)
    with pytest.raises(LostFileError, match=r'"00001-a.gz.metadata.json" is not whole'):
        read_metadata(str(path))


@pytest.mark.parametrize("content", [b"[]", b"{", b"\0" * 20, b"\xff"])
def test_a_metadata_file_that_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.metadata.json").write_bytes(content)
    with pytest.raises(LostFileError, match="is not whole"):
        read_metadata(str(tmp_path / "m.metadata.json"))


def test_another_table_s_state_is_no_base(tmp_path: Path) -> None:
    lake = TornLake(tmp_path)
    lake.append(1)
    metadata = read_metadata(lake.pointer.location)
    zeros(lake.last_files()["data file"])
    check_table(metadata, metadata)
    with pytest.raises(LostFileError, match=r"ends in zeros"):
        check_table(metadata, {**metadata, "table-uuid": "other"})


def test_another_store_s_files_are_not_looked_at() -> None:
    tip = {"snapshot-id": 1, "manifest-list": "s3://bucket/list.avro"}
    check_table({"current-snapshot-id": 1, "snapshots": [tip, {"snapshot-id": 2}]}, None)
