"""A table's own files, written by whoever has the rows: Parquet as Iceberg reads it.

Iceberg knows a column of a file by its field id, so each is written with the id it has in the
table's schema. What a table asks for that is not done here sends its rows through Spark as before:
partitions, files in other places or formats, columns of types that nothing is published to.

Deletes are positions in one data file each. A reader then opens those of the files that it reads
and no others, and what is deleted in a file can be counted, which a vacuum goes by.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from catalog.errcodes import ReplicationError
from workers.lake.counts import LakeIdent
from workers.lake.destination import SOURCE_COLUMN
from workers.lake.staged import NewFile, Shape
from workers.lake.staging_place import table_errors
from workers.lake.table_schema import current_fields, plain_type

FILE_SIZE: Final = 128 << 20
"""Bytes of a file of rows after which the next one is begun."""
ROW_GROUP: Final = 131_072
"""Rows of a row group at most: a reader of few neighbouring keys skips the others."""
GROUP_BYTES: Final = 8 << 20
"""Bytes of rows from which on a row group has no more: they are in memory until it is written."""
_FILE_PATH_ID: Final = b"2147483546"
_POSITION_ID: Final = b"2147483545"
"""The field ids that Iceberg's specification gives the columns of a file of deletes."""
FIELD_ID: Final = b"PARQUET:field_id"
ROW_NUMBER: Final = pa.field("_row_id", pa.int64(), True, {FIELD_ID: b"2147483540"})
"""Iceberg's own column of a table in format 3; a table cannot have another one of that name."""
_DICTIONARY: Final = 16 << 10
_PAGE: Final = 128 << 10
"""Bytes of a page: what a reader unpacks at a time. With Arrow's 1 MB a scan of 3 M rows took 8 %
longer, and is no cheaper to write by as much as can be measured."""
_BITS: Final = 40

Array = npt.NDArray[np.int64]
Codec = Literal["zstd", "gzip", "snappy", "none"]
_CODECS: Final[Mapping[str, Codec]] = {
    "zstd": "zstd",
    "gzip": "gzip",
    "snappy": "snappy",
    "uncompressed": "none",
}


@dataclass(frozen=True, slots=True)
class TableFiles:
    """What is to be known of a table to write its files; ``deletes``: those of positions too."""

    location: str
    schema: pa.Schema
    shape: Shape
    codec: Codec
    level: int | None
    deletes: bool

    @property
    def names(self) -> list[str]:
        """The columns, in order."""
        names: list[str] = self.schema.names
        return names

    @property
    def has_vectors(self) -> bool:
        """Whether deletes are vectors, and rows have numbers that an update leaves as they are."""
        return self.shape.format_version > 2

    def numbered(self) -> TableFiles:
        """The same with the number of each row among its columns, which most files do not hold."""
        return replace(self, schema=self.schema.append(ROW_NUMBER))

    def new_file(
        self, attempt: str = "", suffix: str = "", ending: str = "parquet"
    ) -> tuple[str, Path]:
        """A name nobody has, in the metadata and on this machine."""
        path = f"{self.location}/data/pgsub-{attempt}{uuid.uuid4()}{suffix}.{ending}"
        return path, local(path)

    def remove(self, attempt: str) -> None:
        """Remove the files that an attempt has written."""
        for path in local(f"{self.location}/data").glob(f"pgsub-{attempt}*.parquet"):
            path.unlink(missing_ok=True)


def table_files(metadata: Mapping[str, Any]) -> TableFiles | None:
    """From a table's metadata; None where its rows are better left to Spark."""
    location: str = metadata["location"].rstrip("/")
    properties: Mapping[str, str] = metadata.get("properties", {})
    if local_folder(location) is None or _is_special(metadata, properties):
        return None
    fields = current_fields(metadata)
    found = [_field(each["name"], each["id"], each["type"], each["required"]) for each in fields]
    columns = [column for column in found if column is not None]
    codec = _CODECS.get(properties.get("write.parquet.compression-codec", "zstd").lower())
    level = properties.get("write.parquet.compression-level")
    if codec is None or len(columns) < len(found) or any(map(_has_default, fields)):
        return None
    return TableFiles(
        location,
        pa.schema(columns),
        Shape(
            metadata["table-uuid"],
            metadata["current-schema-id"],
            metadata["default-spec-id"],
            metadata["format-version"],
        ),
        codec,
        int(level) if level and codec in ("zstd", "gzip") else None,
        deletes=_is_format_known(metadata, columns) and _merges_on_read(properties),
    )


def _has_default(field: Mapping[str, Any]) -> bool:
    """Whether a row that has no value there has one all the same, from format 3 on."""
    return "initial-default" in field or "write-default" in field


def _is_format_known(metadata: Mapping[str, Any], columns: Sequence[pa.Field[Any]]) -> bool:
    version = metadata["format-version"]
    taken = any(column.name == ROW_NUMBER.name for column in columns)
    return version == 2 or (version == 3 and not taken)


def local_folder(location: str) -> Path | None:
    """A table's folder on this machine; None for one elsewhere."""
    if re.match(r"(file:)?/(?!/)|file:///(?!/)", location):
        return local(location)
    return None


def local(path: str) -> Path:
    """A file of a table on this machine: ``/x``, ``file:/x`` and ``file:///x`` are one."""
    return Path("/" + path.removeprefix("file:").lstrip("/"))


def _merges_on_read(properties: Mapping[str, str]) -> bool:
    modes = (properties.get(f"write.{each}.mode") for each in ("merge", "update", "delete"))
    return all(mode == "merge-on-read" for mode in modes)


_ELSEWHERE: Final = ("write.data.path", "write.folder-storage.path", "write.object-storage.path")


def _is_special(metadata: Mapping[str, Any], properties: Mapping[str, str]) -> bool:
    """Whether a writer has more to do than to put rows into a file in ``data``."""
    spec_id = metadata["default-spec-id"]
    spec = next(each for each in metadata["partition-specs"] if each["spec-id"] == spec_id)
    return bool(
        spec["fields"]
        or len(metadata["partition-specs"]) > 1
        or metadata.get("default-sort-order-id")
        or any(key in properties for key in _ELSEWHERE)
        or properties.get("write.object-storage.enabled", "false").lower() == "true"
        or properties.get("write.format.default", "parquet").lower() != "parquet"
        or "encryption.key-id" in properties
        or any(key.startswith("write.parquet.bloom-filter") for key in properties)
    )


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


# -- rows -----------------------------------------------------------------------------------------


def as_rows(
    files: TableFiles, batch: pa.RecordBatch, columns: Sequence[str], source: str = ""
) -> pa.RecordBatch:
    """Staged columns ``c0…`` as the table's, in its order; what is not given is NULL.

    All of ``columns`` must be the table's (``lacks``). ``source`` goes into the column that says
    where a shared table's rows are from.
    """
    ordinals = {name: n for n, name in enumerate(columns)}
    arrays = []
    for field in files.schema:
        if source and field.name == SOURCE_COLUMN:
            value = pa.repeat(pa.scalar(source, field.type), batch.num_rows)
        elif field.name in ordinals:
            value = _as_type(batch.column(f"c{ordinals[field.name]}"), field.type)
        else:
            value = pa.nulls(batch.num_rows, field.type)
        arrays.append(value)
    rows: pa.RecordBatch = pa.RecordBatch.from_arrays(arrays, schema=files.schema)
    return rows


def lacks(files: TableFiles, columns: Iterable[str]) -> bool:
    """Whether the table has not all of these columns: one was renamed or dropped since."""
    return not set(columns) <= set(files.names)


def _as_type(array: Any, type: pa.DataType) -> Any:
    """The table's type: the same, but for what lists call their elements and how they number them,
    and for strings with large offsets."""
    return array if array.type == type else array.cast(type)


def check_values(ident: LakeIdent, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows, if no column has a NULL that takes none (23502)."""
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if _lacks(field, column):
            raise ReplicationError(
                f'null value in column "{field.name}" of lake table "{ident}" violates not-null '
                "constraint",
                hint="Drop the constraint from the lake table's column, or correct the value on "
                "the publisher.",
                sqlstate="23502",
            )
    return batch


def _lacks(field: pa.Field[Any], column: Any) -> bool:
    """Whether a value is missing that has to be there, an element of a list's too."""
    if column.null_count and not field.nullable:
        return True
    lists = pa.types.is_list(field.type) and not field.type.value_field.nullable
    return bool(lists and column.flatten().null_count)


def write_whole(
    files: TableFiles,
    ident: LakeIdent,
    batches: Iterable[pa.RecordBatch],
    columns: Sequence[str],
    written: Callable[[NewFile], None],
    source: str = "",
    attempt: str = "",
) -> None:
    """Staged columns ``c0…`` as rows of new files; see ``as_rows``, ``check_values``."""
    rows = (as_rows(files, batch, columns, source) for batch in batches)
    write_ahead(files, (check_values(ident, batch) for batch in rows), written, attempt)


def write_ahead(
    files: TableFiles,
    batches: Iterable[pa.RecordBatch],
    written: Callable[[NewFile], None],
    attempt: str = "",
) -> None:
    """Write rows to new files; while some are written, a thread makes the next ones."""
    # Closed, whatever becomes of it: two threads must not take from one connection.
    with closing(_ahead(batches)) as ahead:
        # Gathered here: whole row groups made ahead took 60 MB.
        write_groups(files, row_groups(ahead), written, attempt=attempt)


def row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows, as many at a time as a row group is to have; nothing for no rows.

    Whatever is written at once is a row group, and no row group has rows of two writes: each costs
    its reader some buffers and a dictionary for each column, whether it has 100,000 rows or three.
    """
    gathered: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows:  # an empty row group has no bounds
            gathered.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
        while rows >= ROW_GROUP or size >= GROUP_BYTES:
            whole = pa.Table.from_batches(gathered)
            yield whole.slice(0, ROW_GROUP)
            rest = whole.slice(ROW_GROUP)
            gathered, rows, size = rest.to_batches(), rest.num_rows, rest.nbytes
    if gathered:
        yield pa.Table.from_batches(gathered)


def _ahead(batches: Iterable[pa.RecordBatch]) -> Generator[pa.RecordBatch]:
    source = iter(batches)
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, source, None)
        while (batch := coming.result()) is not None:
            coming = pool.submit(next, source, None)
            yield batch


def write_rows(
    files: TableFiles, batches: Iterable[pa.RecordBatch], written: Callable[[NewFile], None]
) -> None:
    """The same in this thread alone."""
    write_groups(files, row_groups(batches), written)


def write_groups(
    files: TableFiles,
    groups: Iterable[pa.Table],
    written: Callable[[NewFile], None],
    size: int = FILE_SIZE,
    attempt: str = "",
) -> None:
    """Write ``row_groups`` to new files, each of ``size`` or what follows; none for no rows.

    ``written`` is told of each file, complete; one that is not, an error removes. ``attempt`` is
    in their names.
    """
    with table_errors():
        rest = iter(groups)
        for first in rest:
            written(_write_file(files, first, rest, size, attempt))


def _write_file(
    files: TableFiles,
    first: pa.Table,
    rest: Iterator[pa.Table],
    size: int,
    attempt: str,
) -> NewFile:
    path, place = files.new_file(attempt)
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        with place.open("xb") as file:
            rows = 0
            with pq.ParquetWriter(
                file,
                files.schema,
                compression=files.codec,
                compression_level=files.level,
                dictionary_pagesize_limit=_DICTIONARY,
                data_page_size=_PAGE,
                write_statistics=_bounded(files.schema),
                store_decimal_as_integer=True,
                store_schema=False,
            ) as writer:
                group: pa.Table | None = first
                while group is not None:
                    rows += group.num_rows
                    writer.write_table(group, row_group_size=ROW_GROUP)
                    group = next(rest, None) if file.tell() < size else None
            # Collected by the writer it would hide, where it cannot be written, why.
            footer = writer.writer.metadata
            return NewFile(path, file.tell(), rows, unbounded=_unbounded(files, footer))
    except BaseException:
        place.unlink(missing_ok=True)
        raise


def linked(files: TableFiles, file: NewFile) -> NewFile:
    """A file under a second name: what becomes of the first does not concern it."""
    path, place = files.new_file()
    with table_errors():
        os.link(local(file.path), place)
    return replace(file, path=path)


def _bounded(schema: pa.Schema) -> bool | list[str]:
    """The columns whose least and greatest value is written; True for all.

    Not of those that may have a NaN, which Arrow leaves out of both, and Iceberg is told of none:
    it is greater than every number, so readers of ``x > 4`` would not have it, and
    ``DELETE … WHERE x <= 4`` would take it with a file of others.
    """
    if not any(pa.types.is_floating(field.type) for field in schema):
        return True
    unlike = (pa.types.is_floating, pa.types.is_nested)
    return [field.name for field in schema if not any(each(field.type) for each in unlike)]


def _unbounded(files: TableFiles, footer: Any) -> tuple[int, ...]:
    """The columns of whose values a row group does not tell the least and the greatest.

    Arrow leaves them out where one is longer than 4 kB, and says how many are NULL all the same.
    Iceberg takes that for a row group of NULLs: the file's bounds would be those of the others.
    """
    ids = [int((field.metadata or {})[FIELD_ID]) for field in files.schema]
    found = set()
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for at, field_id in enumerate(ids):  # each has one leaf, whatever it is a list of
            if _is_unbounded(group.column(at)):
                found.add(field_id)
    return tuple(sorted(found))


def _is_unbounded(chunk: Any) -> bool:
    said = chunk.statistics
    if said is None:
        return True
    return not said.has_min_max and said.null_count != chunk.num_values


# -- deletes --------------------------------------------------------------------------------------

_NAMES: Final = pa.dictionary(pa.int32(), pa.string())
_DELETES: Final = pa.schema(
    [
        pa.field("file_path", _NAMES, False, {FIELD_ID: _FILE_PATH_ID}),
        pa.field("pos", pa.int64(), False, {FIELD_ID: _POSITION_ID}),
    ]
)
_REPEATED: Final[Any] = ["file_path"]
"""No place is there twice, so a dictionary of places would be in vain."""
Places = Mapping[str, Array]
"""Rows by the data file they are in: their positions, in ascending order, each once."""
NO_PLACES: Final[Array] = np.empty(0, np.int64)


def by_file(paths: Any, positions: Any) -> Places:
    """Rows by the data file they are in, in any order and as often as they are."""
    encoded = paths if pa.types.is_dictionary(paths.type) else paths.dictionary_encode()
    # One number for a place: there are no files of 2^40 rows, nor so many of them.
    places = _sorted((encoded.indices.to_numpy().astype(np.int64) << _BITS) | positions.to_numpy())
    parts = np.split(places, np.flatnonzero(np.diff(places >> _BITS)) + 1)
    return {
        encoded.dictionary[int(part[0] >> _BITS)].as_py(): part & ((1 << _BITS) - 1)
        for part in parts
        if len(part)
    }


def together(all_places: Iterable[Places]) -> Places:
    """The rows of all of them."""
    found: dict[str, list[Array]] = {}
    for places in all_places:
        for path, positions in places.items():
            found.setdefault(path, []).append(positions)
    return {path: _sorted(np.concatenate(parts)) for path, parts in found.items()}


def _sorted(numbers: Array) -> Array:
    """Each once; NumPy's ``unique`` does not see that they are, or nearly, in order already."""
    rising = numbers[1:] > numbers[:-1]
    if rising.all():
        return numbers
    numbers = np.sort(numbers, kind="stable")
    first = np.ones(len(numbers), np.bool_)
    np.not_equal(numbers[1:], numbers[:-1], out=first[1:])
    return numbers[first]


def write_deletes(files: TableFiles, places: Places) -> NewFile:
    """The places of deleted rows; where all are in one data file, the file says so."""
    names = sorted(places)  # by file and position: readers rely on it
    codes = np.repeat(np.arange(len(names), dtype=np.int32), [len(places[each]) for each in names])
    rows = pa.Table.from_arrays(
        [
            pa.DictionaryArray.from_arrays(codes, pa.array(names, pa.string())),
            pa.array(np.concatenate([places[each] for each in names])),
        ],
        schema=_DELETES,
    )
    path, place = files.new_file(suffix="-deletes")
    with table_errors():
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            pq.write_table(
                rows,
                place,
                compression="zstd",
                compression_level=1,
                use_dictionary=_REPEATED,
                store_schema=False,
            )
        except BaseException:
            place.unlink(missing_ok=True)
            raise
        of = names[0] if len(names) == 1 else None
        return NewFile(path, place.stat().st_size, len(codes), of)


def read_deletes(path: str) -> Places:
    """The places in a file of deletes, ours or another writer's."""
    with table_errors():
        found = pq.read_table(
            local(path), columns=["file_path", "pos"], read_dictionary=["file_path"]
        )
    return by_file(found["file_path"].unify_dictionaries().combine_chunks(), found["pos"])
