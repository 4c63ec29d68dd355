"""A lake without a server: pyiceberg's tables in the embedded catalog, and files that are torn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from workers.lake.storage.catalog_pointers import CatalogPointers, Pointer
from workers.lake.storage.local_path import local_path
from workers.lake.table import LakeIdent

IDENT = LakeIdent("public", "t")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def zeros(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-64] + bytes(64))


def missing(path: Path) -> None:
    path.unlink()


TEARS: tuple[Callable[[Path], None], ...] = (empty, cut, zeros, missing)


@dataclass(slots=True)
class TornLake:
    """Table ``public.t`` of an embedded catalog, with a row for each commit."""

    data_dir: Path

    def __post_init__(self) -> None:
        (self.data_dir / "lake").mkdir(parents=True)
        self.catalog.create_namespace("public")
        self.catalog.create_table("public.t", pa.schema([("id", pa.int64())]))

    @property
    def file(self) -> Path:
        return self.data_dir / "lake" / "catalog.db"

    @property
    def catalog(self) -> SqlCatalog:
        where = f"file://{self.data_dir}/lake/warehouse"
        return SqlCatalog("lake", uri=f"sqlite:///{self.file}", warehouse=where)

    @property
    def table(self) -> Table:
        return self.catalog.load_table("public.t")

    @property
    def pointer(self) -> Pointer:
        (found,) = CatalogPointers(self.file).all()
        return found

    def append(self, number: int) -> str:
        """Commit a row; the table's metadata file then."""
        self.table.append(pa.table({"id": [number]}))
        return self.pointer.location

    def rows(self) -> list[int]:
        found: list[Any] = self.table.scan().to_arrow()["id"].to_pylist()
        return sorted(found)

    def last_files(self) -> dict[str, Path]:
        """The files that the last commit wrote, by kind."""
        table = self.table
        snapshot = table.current_snapshot()
        assert snapshot is not None
        (manifest,) = (
            each
            for each in snapshot.manifests(table.io)
            if each.added_snapshot_id == snapshot.snapshot_id
        )
        (entry,) = manifest.fetch_manifest_entry(table.io)
        found = {
            "metadata": self.pointer.location,
            "manifest list": snapshot.manifest_list,
            "manifest": manifest.manifest_path,
            "data file": entry.data_file.file_path,
        }
        return {kind: local_path(path) for kind, path in found.items()}
