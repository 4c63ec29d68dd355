"""ObjectStore: files in a bucket of S3, Google Cloud Storage or Azure, through pyarrow.

Small objects of S3 go through obstore where that is possible (``whole_objects``).

A path has the form of a table's metadata (``bucket``). Paths hold no credentials. The files of a
table are reached as the table's own file access says (``StoreAccess``). For staged files pyarrow
takes credentials, region and endpoint from the environment, a profile or the machine, as every
client of the store does; Spark has separate credentials.

Pyarrow shows the stores in different ways, and this module makes one of them:

* A folder of Google's is in no listing of the folder above, so all files below are listed.
* ``delete_dir`` raises for a missing folder of Google's and has no error number for the reason.
* Azure shows an empty file while the file is written. Others show a file from its closing on.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

from config.limits import READ_AT_ONCE_BYTES
from config.monitor_limits import LENT_KEY_SESSIONS, STORE_THREADS, WRITE_AT_ONCE_BYTES
from workers.lake.storage.adls_access import AdlsAccess
from workers.lake.storage.bucket import Bucket, FileStore, bucket_at, key_of
from workers.lake.storage.file_errors import STAGED_FILES, TABLE_FILES, file_errors, reason
from workers.lake.storage.gcs_access import GcsAccess
from workers.lake.storage.s3_access import S3Access, settle_checksums
from workers.lake.storage.store import TableStore
from workers.lake.storage.store_access import StoreAccess
from workers.lake.storage.whole_objects import (
    GrowingObject,
    WholeObjects,
    whole_objects,
)

log = logging.getLogger(__name__)


ACCESS: Final[dict[FileStore, type[StoreAccess]]] = {
    FileStore.S3: S3Access,
    FileStore.GCS: GcsAccess,
    FileStore.ADLS: AdlsAccess,
}
"""The access of each kind of store."""


@lru_cache(LENT_KEY_SESSIONS)
def bucket_file_system(bucket: Bucket, access: StoreAccess | None = None) -> Any:
    """Pyarrow's file system for a bucket."""
    if access is None and bucket.kind is FileStore.S3:
        settle_checksums()
        # By URI: only then pyarrow looks for AWS_ENDPOINT_URL, or else for the bucket's region.
        return fs.FileSystem.from_uri(f"s3://{bucket.name}")[0]
    return (access or ACCESS[bucket.kind]()).file_system(bucket)


@dataclass(frozen=True, slots=True)
class ObjectStore(TableStore):
    """Files in one bucket. ``access`` is the table's; None for staged files.

    Removing never raises: a store that refuses is logged, and the file stays. No later write meets
    the file, because the names of staged files and folders are never used again.
    """

    bucket: Bucket
    access: StoreAccess | None = None

    def __post_init__(self) -> None:
        """Give Arrow enough threads: each thread is one request, whatever the writers are."""
        if pa.io_thread_count() < STORE_THREADS:
            pa.set_io_thread_count(STORE_THREADS)

    @property
    def _system(self) -> Any:
        return bucket_file_system(self.bucket, self.access)

    def _whole(self) -> WholeObjects | None:
        """What reaches small objects with one request each; None: only pyarrow."""
        return whole_objects(self.bucket, self.access)

    def errors(self) -> AbstractContextManager[None]:
        """Turn an OSError of the block into 53100 or 58030."""
        return file_errors(STAGED_FILES if self.access is None else TABLE_FILES)

    def holds(self, path: str) -> bool:
        """Is the path in the bucket?"""
        return bucket_at(path) == self.bucket

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        """Open an object for reading; every read is a request. A small one is read by one.

        Pyarrow asks the store for the size before, in a request of its own, also if the size is
        known.
        """
        at_once = size if size is not None and size <= READ_AT_ONCE_BYTES else None
        with self.errors():
            if at_once is not None and (small := self._whole()):
                found = small.read(_in_bucket(path), at_once)
                if found is not None:
                    return pa.BufferReader(found)
            file: pa.NativeFile = self._system.open_input_file(key_of(path))
            if at_once is None:
                return file
            with file:
                return pa.BufferReader(file.read_buffer(at_once))

    @contextlib.contextmanager
    def create(self, path: str, size: int | None = None) -> Iterator[Any]:
        """Write a new object, complete from its closing on.

        Pyarrow cannot abort an upload. An object whose block raises is therefore completed and then
        removed. An existing object of the same path is replaced, because looking
        for the object costs a request.
        """
        small = self._whole() if size is not None and size <= WRITE_AT_ONCE_BYTES else None
        with self.errors():
            if small is None:
                with self._stream(path) as file:
                    yield file
                return
            with contextlib.ExitStack() as stream:
                growing = GrowingObject(
                    WRITE_AT_ONCE_BYTES, lambda: stream.enter_context(self._stream(path))
                )
                yield growing
                if growing.stream is None:
                    self._write(small, path, growing.content())

    def _write(self, small: WholeObjects, path: str, content: pa.Buffer) -> None:
        """Write a small object, by pyarrow if obstore did not bring the request to an end."""
        with self._removed_on_error(path):
            if not small.write(_in_bucket(path), content):
                with self._upload(path) as file:
                    file.write(content)

    @contextlib.contextmanager
    def _stream(self, path: str) -> Iterator[Any]:
        """An upload of parts by pyarrow, removed when the block raises."""
        file = self._upload(path)
        with self._removed_on_error(path), file:
            yield file

    def _upload(self, path: str) -> Any:
        return self._system.open_output_stream(key_of(path), compression=None)

    @contextlib.contextmanager
    def _removed_on_error(self, path: str) -> Iterator[None]:
        """Remove the object after any error: also behind a signal the object may be there."""
        try:
            yield
        except BaseException:
            self.remove(path)
            raise

    def size(self, path: str) -> int:
        """The object's size in bytes."""
        with self.errors(), self._system.open_input_file(key_of(path)) as file:
            return int(file.size())

    def copy(self, path: str, to: str) -> None:
        """Copy inside the store."""
        with self.errors():
            self._system.copy_file(key_of(path), key_of(to))

    def remove(self, path: str) -> None:
        """Remove an object; no error if the object is missing."""
        with _logged():
            self._system.delete_file(key_of(path))

    def list_prefix(self, folder: str, prefix: str) -> list[str]:
        """The paths of a folder's objects with ``prefix``."""
        found = self._listed(folder)
        files = (each.base_name for each in found if each.type is fs.FileType.File)
        return [f"{folder}/{name}" for name in files if name.startswith(prefix)]

    def remove_folder(self, folder: str) -> None:
        """Remove all objects of a folder."""
        with _logged():
            if self._has_folders:
                self._system.delete_dir(key_of(folder))
            else:
                self._system.delete_dir_contents(key_of(folder), missing_dir_ok=True)

    def remove_folders(self, folder: str, prefix: str, *, keep: str = "") -> None:
        """Remove the folders in ``folder`` with ``prefix``, except the path ``keep``."""
        found = self._listed(folder, recursive=not self._has_folders)
        above = f"{key_of(folder)}/"
        names = {each.path.removeprefix(above).partition("/")[0] for each in found}
        for name in sorted(names):
            if name.startswith(prefix) and f"{folder}/{name}" != keep:
                self.remove_folder(f"{folder}/{name}")

    @property
    def _has_folders(self) -> bool:
        """Does pyarrow show folders of the store as it shows those of a disk?"""
        return self.bucket.kind is not FileStore.GCS

    def _listed(self, folder: str, *, recursive: bool = False) -> list[Any]:
        with self.errors():
            chosen = fs.FileSelector(key_of(folder), allow_not_found=True, recursive=recursive)
            found: list[Any] = self._system.get_file_info(chosen)
        return found

    def make_durable(self, folders: Collection[str]) -> None:
        """Do nothing: the store has answered every write, so every object is safe."""
        del folders

    def spark_path(self, path: str) -> str:
        """The unchanged path: buckets and keys of ours have no pattern characters."""
        return path

    @property
    def is_stale(self) -> bool:
        """Yes if the catalog has lent the keys, and the keys end soon."""
        return self.access is not None and self.access.is_stale

    @property
    def has_cheap_requests(self) -> bool:
        """No: every range of an object is a request to the store."""
        return False


def _in_bucket(path: str) -> str:
    """The key of a path, without the bucket."""
    return key_of(path).partition("/")[2]


@contextlib.contextmanager
def _logged() -> Iterator[None]:
    """Log an error of the store in place of raising; a missing object is no error."""
    try:
        yield
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("action=staging could not remove staged files: %s", reason(error))
