"""What the commit service and the user's Spark server must both see."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from catalog.errcodes import TwoLakes
from workers.lake.api.one_catalog import expect_commit, expect_files, expect_table
from workers.lake.interfaces.table_api import FileCommits, TableApi
from workers.lake.metadata.snapshots import FENCE, History
from workers.lake.metadata.table_state import TableState
from workers.lake.table import MAIN, LakeIdent

IDENT = LakeIdent("s", "t")


class Server:
    """It shows the table with ``main`` at a snapshot, or no table."""

    def __init__(self, main: int | None) -> None:
        self._main = main

    def describe(self, ident: LakeIdent) -> TableState | None:
        assert ident == IDENT
        return None if self._main is None else TableState((), History({MAIN: self._main}, {}), {})


def server(main: int | None) -> TableApi:
    return cast("TableApi", Server(main))


def test_the_same_snapshot_is_the_same_table() -> None:
    expect_table(IDENT, server(7), server(7))


@pytest.mark.parametrize(("here", "there"), [(7, 8), (7, None), (None, 7), (None, None)])
def test_anything_else_is_two_catalogs(here: int | None, there: int | None) -> None:
    with pytest.raises(TwoLakes, match="do not have the same catalog") as error:
        expect_table(IDENT, server(here), server(there))
    assert "lake.catalog" in (error.value.hint or "")


class Commits:
    """A table in a folder, with one snapshot, in a store that this process reaches or not."""

    def __init__(self, location: str) -> None:
        self.metadata = {
            "location": location,
            "snapshots": [{"manifest-list": f"{location}/metadata/snap-1-a.avro"}],
        }

    def metadata_and_store(self, ident: LakeIdent, what: str) -> tuple[dict[str, Any], None]:
        assert str(ident) in what
        return self.metadata, None


def commits(location: str) -> FileCommits:
    return cast("FileCommits", Commits(location))


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_file_that_spark_wrote_has_to_be_here(tmp_path: Path, scheme: str) -> None:
    there = commits(f"{scheme}{tmp_path}")
    for made in ("metadata", "metadata/snap-2-b.avro"):
        with pytest.raises(TwoLakes, match="do not have the same store") as error:
            expect_files(IDENT, there)
        assert "commit_service: off" in (error.value.hint or "")
        (tmp_path / made).touch() if made.endswith("avro") else (tmp_path / made).mkdir()
    with pytest.raises(TwoLakes):
        expect_files(IDENT, there)
    (tmp_path / "metadata" / "snap-1-a.avro").touch()
    expect_files(IDENT, there)


def test_a_store_that_no_worker_reaches_shows_nothing() -> None:
    for location in ("gs://bucket/t", "s3://asks-for-more/t"):
        expect_files(IDENT, commits(location))


def test_a_commit_has_to_be_seen_as_a_whole() -> None:
    metadata: dict[str, Any] = {
        "snapshots": [
            {"snapshot-id": 1, "summary": {"operation": "append", FENCE: "of another worker"}},
            {"snapshot-id": 2, "summary": {"operation": "append", FENCE: "ours", "more": "x"}},
            {"snapshot-id": 3, "summary": {"operation": "append"}},
        ]
    }
    expect_commit(IDENT, metadata, {FENCE: "ours"})
    for unseen in ({FENCE: "unseen"}, {FENCE: "ours", "more": "y"}):
        with pytest.raises(TwoLakes):
            expect_commit(IDENT, metadata, unseen)
    with pytest.raises(TwoLakes):
        expect_commit(IDENT, {}, {FENCE: "ours"})
