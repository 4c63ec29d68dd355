"""How the data files of a table are written, as the table's metadata says.

``read_layout`` reads the layout from the metadata. A table with a feature that this room does not
implement is ``Unwritable``, and Spark writes the table: unknown partition transforms, files in
unusual places or formats, encryption, default values, and types that are never published.

A file of new rows belongs to one partition of the table's current spec, and the rows of a row group
are in the table's sort order. Iceberg reads the partition from the metadata, so all files lie in
the folder ``data``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import pyarrow as pa

from workers.lake.metadata.partitioning import (
    UNPARTITIONED,
    PartitionSpec,
    SortField,
    Transform,
    current_order,
    current_spec,
    has_places,
)
from workers.lake.metadata.table_schema import current_fields, plain_type
from workers.lake.new_layout import can_transform
from workers.lake.staged_rows import LayoutId
from workers.lake.storage.choose_store import store_for
from workers.lake.storage.local_path import is_local
from workers.lake.storage.store import TableStore, remove_all
from workers.lake.writer_choice import Unwritable

FIELD_ID: Final = b"PARQUET:field_id"
"""The key of a field's metadata that holds Iceberg's id of the column."""
ROW_NUMBER: Final = pa.field("_row_id", pa.int64(), True, {FIELD_ID: b"2147483540"})
"""Iceberg's column of row numbers in format 3. No table can have a column of this name besides."""
Codec = Literal["zstd", "gzip", "snappy", "none"]
_CODECS: Final[Mapping[str, Codec]] = {
    "zstd": "zstd",
    "gzip": "gzip",
    "snappy": "snappy",
    "uncompressed": "none",
}


@dataclass(frozen=True, slots=True)
class TableLayout:
    """How to write a table's files. ``writes_deletes``: may this process write delete files?

    ``has_places``: may files of the table belong to different partitions or specs? Then every file
    names its place.
    """

    store: TableStore
    location: str
    schema: pa.Schema
    layout_id: LayoutId
    codec: Codec
    level: int | None
    writes_deletes: bool
    spec: PartitionSpec = UNPARTITIONED
    order: tuple[SortField, ...] = ()
    has_places: bool = False

    @property
    def names(self) -> list[str]:
        """The names of the columns, in order."""
        names: list[str] = self.schema.names
        return names

    @property
    def has_vectors(self) -> bool:
        """Format 3: deletes are vectors, and a row has a number that an update keeps."""
        return self.layout_id.format_version > 2

    @property
    def keeps_positions(self) -> bool:
        """Are new rows where they were staged, and may the commit of a file delete some of them?

        In format 3 the new row of an update has the number of the old row, which is not known
        before the commit. Rows of a partitioned or sorted table change places.
        """
        is_plain = not (self.has_vectors or self.has_places or self.order)
        return self.writes_deletes and is_plain

    def numbered(self) -> TableLayout:
        """The layout of files that hold the number of each row as a column; most files do not."""
        return replace(self, schema=self.schema.append(ROW_NUMBER))

    def new_path(self, copy_id: str = "", suffix: str = "", ending: str = "parquet") -> str:
        """A path that no file has. The name of a copied file holds the copy id."""
        copy = f"copy-{copy_id}-" if copy_id else ""
        return f"{self.location}/data/pgsub-{copy}{uuid.uuid4()}{suffix}.{ending}"

    def copied(self, copy_id: str) -> list[str]:
        """The files that a copy wrote, committed or not."""
        if not copy_id:
            return []
        return self.store.list_prefix(f"{self.location}/data", f"pgsub-copy-{copy_id}-")

    def remove(self, copy_id: str) -> None:
        """Remove the files of a copy that has committed nothing."""
        remove_all(self.store, self.copied(copy_id))


def read_layout(
    metadata: Mapping[str, Any], store: TableStore | None = None
) -> TableLayout | Unwritable:
    """Read the layout from a table's metadata; ``Unwritable`` if Spark has to write the table.

    ``store`` is the store of a table in a bucket, reached with the table's keys.
    """
    location: str = metadata["location"].rstrip("/")
    properties: Mapping[str, str] = metadata.get("properties", {})
    if store is None and is_local(location):
        store = store_for(location)
    if store is None:
        return Unwritable(_STORE)
    special = special_property(properties)
    if special is not None:
        return Unwritable(only_spark(special))
    fields = current_fields(metadata)
    columns: list[pa.Field[Any]] = []
    for each in fields:
        column = _field(each["name"], each["id"], each["type"], each["required"])
        if column is None or _has_default(each):
            what = "a type" if column is None else "a default value"
            return Unwritable(f'Column "{each["name"]}" has {what} that only Spark writes.')
        columns.append(column)
    spec, order = current_spec(metadata), current_order(metadata)
    if spec is None or order is None or not _are_computed(fields, columns, spec, order):
        return Unwritable("Only Spark computes the table's partitions or sort order.")
    codec = _CODECS[properties.get("write.parquet.compression-codec", "zstd").lower()]
    level = properties.get("write.parquet.compression-level")
    return TableLayout(
        store,
        location,
        pa.schema(columns),
        LayoutId(
            metadata["table-uuid"],
            metadata["current-schema-id"],
            metadata["default-spec-id"],
            metadata["format-version"],
        ),
        codec,
        int(level) if level and codec in ("zstd", "gzip") else None,
        writes_deletes=_is_format_known(metadata, columns) and _merges_on_read(properties),
        spec=spec,
        order=order,
        has_places=has_places(metadata),
    )


def _are_computed(
    fields: Sequence[Mapping[str, Any]],
    columns: Sequence[pa.Field[Any]],
    spec: PartitionSpec,
    order: Sequence[SortField],
) -> bool:
    types = {field["id"]: column.type for field, column in zip(fields, columns, strict=True)}
    computed = [(each.source_id, each.transform) for each in spec.fields]
    computed += [(each.source_id, each.transform) for each in order]
    return all(_is_computed(types, *each) for each in computed)


def _is_computed(types: Mapping[int, pa.DataType], source_id: int, transform: Transform) -> bool:
    """Can this room compute the transform? A former column of an old field is gone."""
    if source_id not in types:
        return False
    return can_transform(transform.kind, types[source_id])


def _has_default(field: Mapping[str, Any]) -> bool:
    """Does the column have a default value? Possible from format 3 on."""
    return "initial-default" in field or "write-default" in field


def _is_format_known(metadata: Mapping[str, Any], columns: Sequence[pa.Field[Any]]) -> bool:
    version = metadata["format-version"]
    taken = any(column.name == ROW_NUMBER.name for column in columns)
    return version == 2 or (version == 3 and not taken)


def _merges_on_read(properties: Mapping[str, str]) -> bool:
    modes = (properties.get(f"write.{each}.mode") for each in ("merge", "update", "delete"))
    return all(mode == "merge-on-read" for mode in modes)


_ELSEWHERE: Final = (
    "write.data.path",
    "write.folder-storage.path",
    "write.object-storage.path",
    "encryption.key-id",
)
_STORE: Final = (
    "A worker reaches a folder, and a bucket of S3, Google or Azure with plain or lent keys; this "
    "table lies elsewhere, or asks for more: encryption, remote signing, roles, access points."
)


def special_property(properties: Mapping[str, str]) -> str | None:
    """A property that asks more of a writer than Parquet files in the folder ``data``, if any."""
    for key, value in properties.items():
        if (
            key in _ELSEWHERE
            or key.startswith("write.parquet.bloom-filter")
            or (key == "write.object-storage.enabled" and value.lower() == "true")
            or (key == "write.format.default" and value.lower() != "parquet")
            or (key == "write.parquet.compression-codec" and value.lower() not in _CODECS)
        ):
            return key
    return None


def only_spark(name: str) -> str:
    """The reason why a worker cannot write the files of a table with a special property."""
    return f"Only Spark writes a table with the property {name}."


def _field(name: str, field_id: int, type: Any, required: bool) -> pa.Field[Any] | None:
    found = _type(type)
    numbered = {FIELD_ID: str(field_id).encode()}
    return None if found is None else pa.field(name, found, not required, numbered)


def _type(type: Any) -> pa.DataType | None:
    if isinstance(type, dict):
        if type["type"] != "list":
            return None
        required = type["element-required"]
        element = _field("element", type["element-id"], type["element"], required)
        return None if element is None else pa.list_(element)
    return plain_type(type)


def lacks_columns(files: TableLayout, columns: Iterable[str]) -> bool:
    """Is a column missing from the table, because it was renamed or dropped?"""
    return not set(columns) <= set(files.names)
