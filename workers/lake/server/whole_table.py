"""Is a table as a metadata file describes it whole, with every file that it rests on?

A power cut leaves a file of no bytes, of too few bytes, or with zeros at the end, or no file at
all. The look is at what is newer than a metadata file that is known to be whole, the *base*: the
metadata file, the manifest lists of snapshots that the base lacks, the manifests that these
snapshots added, and the data and delete files that these manifests added. Without a base, or with a
base of another table, the look is at every file of the snapshots that branches and tags lead to.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from workers.lake.metadata.avro_file import NotWholeError, UnknownCodecError, read_records
from workers.lake.storage.local_path import is_local, local_path

Metadata = Mapping[str, Any]
_END: Final = 4
_DELETED: Final = 2
"""A manifest's status of a file that the table no longer has."""


class LostFileError(Exception):
    """A file is missing or not whole; the text tells which file, and what is wrong."""


def read_metadata(location: str) -> Metadata:
    """A metadata file. Raises ``LostFileError``."""
    data = _read(location)
    try:
        text = gzip.decompress(data) if ".gz." in location else data
        found = json.loads(text)
    except (ValueError, EOFError, OSError, zlib.error):
        raise LostFileError(_named(location, "is not whole")) from None
    if not isinstance(found, dict):
        raise LostFileError(_named(location, "is not whole"))
    return found


def check_table(metadata: Metadata, base: Metadata | None) -> None:
    """Raise ``LostFileError`` if a file is lost that ``metadata`` needs and ``base`` does not."""
    if not _same_table(metadata, base):
        base = None
    looked_at: set[str] = set()
    for snapshot in _new_snapshots(metadata, base):
        path = snapshot.get("manifest-list")
        if path is None or not is_local(path):  # format 1, or another store
            continue
        for manifest in _records(path):
            name = manifest["manifest_path"]
            _check_size(name, manifest["manifest_length"])
            is_new = base is None or manifest["added_snapshot_id"] == snapshot["snapshot-id"]
            if is_new and name not in looked_at:
                looked_at.add(name)
                _check_manifest(name)


def _same_table(metadata: Metadata, base: Metadata | None) -> bool:
    return base is not None and base.get("table-uuid") == metadata.get("table-uuid")


def _new_snapshots(metadata: Metadata, base: Metadata | None) -> Iterator[Mapping[str, Any]]:
    snapshots = metadata.get("snapshots") or ()
    if base is not None:
        old = {each["snapshot-id"] for each in base.get("snapshots") or ()}
        return (each for each in snapshots if each["snapshot-id"] not in old)
    tips = {ref["snapshot-id"] for ref in (metadata.get("refs") or {}).values()}
    tips.add(metadata.get("current-snapshot-id"))
    return (each for each in snapshots if each["snapshot-id"] in tips)


def _check_manifest(path: str) -> None:
    if not is_local(path):
        return
    for entry in _records(path):
        if entry["status"] != _DELETED:
            file = entry["data_file"]
            _check_size(file["file_path"], file["file_size_in_bytes"])


def _check_size(path: str, size: int) -> None:
    """The file's size, and no zeros at the end: Parquet, Puffin, ORC and Avro end otherwise."""
    if not is_local(path):
        return
    try:
        with local_path(path).open("rb") as file:
            found = file.seek(0, 2)
            file.seek(max(found - _END, 0))
            end = file.read()
    except FileNotFoundError:
        raise LostFileError(_named(path, "is missing")) from None
    if found < size or not any(end):
        raise LostFileError(_named(path, f"has {found} bytes in place of {size}, or ends in zeros"))


def _records(path: str) -> list[Any]:
    try:
        return read_records(_read(path))
    except UnknownCodecError:
        return []
    except NotWholeError:
        raise LostFileError(_named(path, "is not whole")) from None


def _read(path: str) -> bytes:
    try:
        return local_path(path).read_bytes()
    except FileNotFoundError:
        raise LostFileError(_named(path, "is missing")) from None


def _named(path: str, what: str) -> str:
    return f'"{Path(path).name}" {what}'
