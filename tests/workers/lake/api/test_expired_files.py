"""Files of expired snapshots on the real lake: they stay for readers, and go when told to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import StaticTable

from catalog.errcodes import ReplicationError
from tests.fix_lake import Lake
from tests.workers.lake.two_columns import append, count, delete, published, stamp
from workers.lake.api.gateway import Gateway
from workers.lake.api.table_api import GatewayTableApi
from workers.lake.effects import FileSizes
from workers.lake.storage.local_path import local_path
from workers.lake.table import LakeIdent

Make = Callable[..., Any]
FILES = FileSizes(1 << 20, 1 << 26, 1 << 26, few=2)


class Lists:
    """Keeps what an expiry lists."""

    def __init__(self) -> None:
        self.uuid = ""
        self.files: list[str] = []

    def keep(self, table_uuid: str, files: Any) -> None:
        self.uuid = table_uuid
        self.files.extend(files)

    def there(self) -> list[bool]:
        return [local_path(file).exists() for file in self.files]


def grow(dest: Any, ident: LakeIdent, branch: str, first: int, batches: int) -> None:
    """Batches, and a compaction that replaces their files."""
    for n in range(first, first + batches):
        dest.write(ident, branch, [append(dest, n, 1)], stamp(20 + n))
        dest.publish(ident, branch, stamp(20 + n))
    assert dest.compact(ident, branch, FILES) > 0
    dest.write(ident, branch, [append(dest, first + batches, 1)], stamp(20 + first + batches))
    dest.publish(ident, branch, stamp(20 + first + batches))


def metadata_file(gateway: Gateway, ident: LakeIdent) -> str:
    with gateway.api("testing") as api:
        return str(api.load(ident).operations().current().metadataFileLocation())


def test_a_planned_scan_finds_its_files_until_the_grace_is_over(
    iceberg: Make, lake_gateway: Gateway, lake_ident: LakeIdent
) -> None:
    """pyiceberg plans on a snapshot, and reads after many batches and two expiries."""
    dest, branch = published(iceberg, lake_ident, batches=4)
    scan = StaticTable.from_metadata(metadata_file(lake_gateway, lake_ident)).scan()
    tasks = list(scan.plan_files())

    def read() -> int:
        reader = ArrowScan(scan.table_metadata, scan.io, scan.projection(), scan.row_filter)
        return reader.to_table(tasks).num_rows

    lists = Lists()
    for first in (4, 10):
        grow(dest, lake_ident, branch, first, 5)
        assert dest.expire(lake_ident, retain=1, list_files=lists.keep) > 4
    planned = {task.file.file_path for task in tasks}
    assert planned <= set(lists.files), "the expiries would have removed the reader's files"
    assert all(lists.there())
    assert read() == 4
    removed = dest.remove_files(lake_ident, lists.uuid, lists.files)
    assert removed == len(lists.files)
    assert not any(lists.there())
    with pytest.raises(FileNotFoundError):
        read()
    assert dest.remove_files(lake_ident, lists.uuid, lists.files) == removed  # a second time
    assert count(dest, lake_ident) == 16
    grow(dest, lake_ident, branch, 16, 2)
    assert count(dest, lake_ident) == 19


def test_a_listed_file_that_a_snapshot_names_stays(
    iceberg: Make, lake_ident: LakeIdent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An expiry died between list and commit, or the table's pointer was set back."""
    dest, branch = published(iceberg, lake_ident, batches=3)
    grow(dest, lake_ident, branch, 3, 3)
    lists = Lists()

    def die(table_uuid: str, files: Any) -> None:
        lists.keep(table_uuid, files)
        raise ReplicationError("killed")

    before = dest.table(lake_ident).snapshots
    with pytest.raises(ReplicationError, match="killed"):
        dest.expire(lake_ident, retain=1, list_files=die)
    assert dest.table(lake_ident).snapshots == before
    assert lists.files
    assert dest.remove_files(lake_ident, lists.uuid, lists.files) == 0
    assert all(lists.there())


def test_a_batch_beside_an_expiry_does_not_make_it_plan_again(
    iceberg: Make, lake_ident: LakeIdent
) -> None:
    """With several batches a second, an expiry that plans again for each of them never ends."""
    dest, branch = published(iceberg, lake_ident, batches=3)
    grow(dest, lake_ident, branch, 3, 3)
    before, lists = dest.table(lake_ident).snapshots, Lists()

    def beside(table_uuid: str, files: Any) -> None:
        lists.keep(table_uuid, files)
        dest.write(lake_ident, branch, [append(dest, 100, 1)], stamp(100))
        dest.publish(lake_ident, branch, stamp(100))
        for file in files:  # a second plan would read them
            local_path(file).rename(f"{local_path(file)}.away")

    assert dest.expire(lake_ident, retain=1, list_files=beside) > 0
    assert len(dest.table(lake_ident).snapshots) < len(before)
    assert dest.table(lake_ident).stamp.lsn == stamp(100).lsn
    assert count(dest, lake_ident) == 8


def test_the_files_of_a_table_with_deletes_go_and_its_delete_files_stay(
    iceberg: Make, lake_ident: LakeIdent
) -> None:
    """A manifest of delete files is read in another way than a manifest of data files."""
    dest, branch = published(iceberg, lake_ident, batches=3)
    lists = Lists()
    grow(dest, lake_ident, branch, 3, 3)
    dest.write(lake_ident, branch, [delete(dest, 1)], stamp(30))
    dest.publish(lake_ident, branch, stamp(30))
    assert dest.expire(lake_ident, retain=1, list_files=lists.keep) > 0
    expired = list(lists.files)
    (folder,) = {local_path(file).parent.parent for file in expired}
    living = [f"file:{each}" for each in folder.rglob("*") if each.is_file()]
    living = [each for each in living if local_path(each) not in set(map(local_path, expired))]
    named = [each for each in living if each.endswith((".avro", ".parquet"))]
    assert dest.remove_files(lake_ident, lists.uuid, [*expired, *named]) == len(expired)
    assert not any(lists.there())
    assert all(local_path(each).exists() for each in named)
    assert count(dest, lake_ident) == 6


def test_the_files_of_another_table_of_the_name_stay(iceberg: Make, lake_ident: LakeIdent) -> None:
    dest, _ = published(iceberg, lake_ident, batches=3)
    lists = Lists()
    dest.expire(lake_ident, retain=1, list_files=lists.keep)
    assert dest.remove_files(lake_ident, "another uuid", lists.files) == 0
    assert dest.remove_files(LakeIdent("contract", "gone"), lists.uuid, lists.files) == 0
    assert all(lists.there())


def test_what_is_listed_is_all_that_an_expiry_removes(
    iceberg: Make, lake_server: Lake, lake_ident: LakeIdent
) -> None:
    """After list and removal the folder holds what it holds without a list."""
    folders = []
    for table in (lake_ident, LakeIdent(lake_ident.schema, f"{lake_ident.table}_2")):
        dest, branch = published(iceberg, table, batches=4)
        grow(dest, table, branch, 4, 5)
        lists = Lists()
        if table == lake_ident:
            dest.expire(table, retain=1)
        else:
            dest.expire(table, retain=1, list_files=lists.keep)
            dest.remove_files(table, lists.uuid, lists.files)
        name = f"7-{table.table}-*"
        (folder,) = Path(lake_server.data_dir).rglob(name)
        kinds = sorted(each.name.rpartition(".")[2] for each in folder.rglob("*.*"))
        folders.append([kind for kind in kinds if kind in ("avro", "parquet")])
    assert folders[0] == folders[1]


def test_without_the_java_api_nothing_is_removed(
    lake_ident: LakeIdent, through_spark: Make
) -> None:
    dest = through_spark()
    assert not isinstance(dest._tables, GatewayTableApi)
    assert dest.remove_files(lake_ident, "uuid", ["file:/nowhere"]) == 0
