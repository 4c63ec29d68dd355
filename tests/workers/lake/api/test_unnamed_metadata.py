"""Metadata files of commits that came second go, and all other files stay."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.workers.lake.two_columns import append, count, published, stamp
from workers.lake.api.gateway import Gateway
from workers.lake.api.unnamed_metadata import older_than_all, remove_unnamed_metadata
from workers.lake.storage.local_path import local_path
from workers.lake.table import LakeIdent

Make = Callable[..., Any]
A, B = "0" * 8 + "-0000-4000-8000-" + "0" * 12, "1" * 8 + "-0000-4000-8000-" + "1" * 12


def path(number: int, unique: str = A) -> str:
    return f"/w/t/metadata/{number:05}-{unique}.metadata.json"


def test_a_file_older_than_every_named_file_is_unnamed() -> None:
    named = [path(number) for number in range(37, 58)]
    others = [
        "/w/t/metadata/snap-31-1-b.avro",
        f"/w/t/metadata/{A}-m0.avro",
        "/w/t/metadata/v3.metadata.json",
    ]
    found = [*named, *others, path(31, B), path(44, B), path(58, B)]
    assert older_than_all(named, found) == [path(31, B)]


def test_a_number_of_six_digits_is_larger() -> None:
    assert older_than_all([path(100_000)], [path(99_999), path(100_000)]) == [path(99_999)]


def test_without_an_order_every_file_stays() -> None:
    named = [path(7), "/w/t/metadata/v6.metadata.json"]
    assert older_than_all(named, [path(1), *named]) == []


def metadata_files(gateway: Gateway, ident: LakeIdent) -> tuple[Path, list[str]]:
    """The folder, and the names of the files that the table's metadata names."""
    with gateway.api("testing") as api:
        current = api.load(ident).operations().current()
        named = [str(entry.file()) for entry in current.previousFiles()]
        named.append(str(current.metadataFileLocation()))
    files = [local_path(file) for file in named]
    return files[0].parent, sorted(file.name for file in files)


def grow(dest: Any, ident: LakeIdent, branch: str, first: int) -> None:
    for n in range(first, first + 12):
        dest.write(ident, branch, [append(dest, n, 1)], stamp(20 + n))
        dest.publish(ident, branch, stamp(20 + n))


def present(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.glob("*.metadata.json"))


@pytest.mark.spark
def test_an_expiry_removes_what_lost_commits_left(
    iceberg: Make, lake_gateway: Gateway, lake_ident: LakeIdent
) -> None:
    dest, branch = published(iceberg, lake_ident, batches=2)
    folder, named = metadata_files(lake_gateway, lake_ident)
    losers = [name[:6] + f"{uuid.uuid4()}.metadata.json" for name in named[-2:]]
    for loser in losers:
        shutil.copy(folder / named[-1], folder / loser)
    dest.expire(lake_ident, retain=1, list_files=lambda *_: None)
    assert set(losers) <= set(present(folder)), "files with the numbers of named files stay"
    grow(dest, lake_ident, branch, 2)
    dest.expire(lake_ident, retain=1, list_files=lambda *_: None)
    folder, named = metadata_files(lake_gateway, lake_ident)
    assert len(named) == 21
    assert present(folder) == named
    assert count(dest, lake_ident) == 14


@pytest.mark.spark
def test_a_table_that_is_to_keep_its_metadata_files_keeps_them(
    iceberg: Make, lake_gateway: Gateway, lake_ident: LakeIdent
) -> None:
    dest, branch = published(iceberg, lake_ident, batches=2)
    with lake_gateway.api("testing") as api:
        update = api.load(lake_ident).updateProperties()
        update.set("write.metadata.delete-after-commit.enabled", "false").commit()
    grow(dest, lake_ident, branch, 2)
    folder, named = metadata_files(lake_gateway, lake_ident)
    before = present(folder)
    assert set(named) < set(before)
    with lake_gateway.api("testing") as api:
        assert remove_unnamed_metadata(api.load(lake_ident)) == 0
    assert present(folder) == before
