"""TableStore: the files below one location, on a local disk or in an object store.

A worker reads and writes files through a store and never asks for the kind of store. Two
implementations:

* ``LocalStore``: a disk that the worker and the lake server reach by the same path.
* ``ObjectStore``: a bucket of S3, Google Cloud Storage or Azure, through pyarrow.

The worker chooses the store once per table (``choose_store``, and ``api.table_store`` for a table
in a bucket, whose keys Iceberg knows).

"Do the worker and the lake server run on one machine?" is a separate question, for
``server_conf.writes_here``. A store does not answer the question.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from config.monitor_limits import STORE_THREADS
from workers.lake.staged_rows import NewFile

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


class TableStore(Protocol):
    """The files below a location. A path is written as in the table's metadata.

    Every method raises 53100 (no space left) or 58030, never with a path, key, host name or value.
    A store is a value: cheap to create, equal to every store of the same location. Spark's
    executors receive a copy.
    """

    def errors(self) -> AbstractContextManager[None]:
        """Turn an OSError of the block into 53100 or 58030: for reading from a file once open."""

    def holds(self, path: str) -> bool:
        """Is the path in this store? A foreign writer may put a table's files elsewhere."""

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        """Open a file for reading at random positions: Parquet footers, deletion vectors.

        With the ``size`` in bytes a small object is read at once.
        """

    def create(self, path: str, size: int | None = None) -> AbstractContextManager[Any]:
        """Write a new file, complete when the block ends and removed when the block raises.

        The block gets a file that takes ``write`` and ``tell``. No file of this path may exist: a
        name is a new UUID. The folder is created if missing. ``size`` is about the number of bytes,
        if known: an object store takes a small file by one request.
        """

    def size(self, path: str) -> int:
        """The file's size in bytes."""

    def copy(self, path: str, to: str) -> None:
        """Give a file's content a second path. Removing the first path leaves the second intact.

        A hard link on a local disk; a copy inside an object store.
        """

    def remove(self, path: str) -> None:
        """Remove a file; no error if the file is missing."""

    def list_prefix(self, folder: str, prefix: str) -> list[str]:
        """The paths of a folder's files with names that begin with ``prefix``."""

    def remove_folder(self, folder: str) -> None:
        """Remove a folder with all files in the folder; no error if the folder is missing."""

    def remove_folders(self, folder: str, prefix: str, *, keep: str = "") -> None:
        """Remove the folders in ``folder`` with ``prefix``, except the path ``keep``."""

    def make_durable(self, folders: Collection[str]) -> None:
        """Put everything onto the disk that any process has written below the folders.

        Nothing to do for an object store: an object store answers a write once the object is safe.
        """

    def spark_path(self, path: str) -> str:
        """The name under which Spark reads the file, with pattern characters escaped.

        Spark takes a path for a pattern. Spark's option against that (``__globPaths__``) does not
        get through Connect.
        """

    @property
    def is_stale(self) -> bool:
        """Do the keys end so soon that the catalog has to be asked for the store again?"""

    @property
    def has_cheap_requests(self) -> bool:
        """Does reading many small ranges of a file cost little, as on a local disk?"""


def confirmed(
    store: TableStore, written: Iterable[NewFile], *, but: Iterable[NewFile] = ()
) -> Collection[str]:
    """The paths of new files of which the store need not be asked whether they exist.

    Files that may be old are left out by ``but``. A local disk is asked: that costs nothing.
    """
    if store.has_cheap_requests:
        return ()
    return {file.path for file in written} - {file.path for file in but}


def for_each(
    store: TableStore, act: Callable[[_Item], _Answer], items: Sequence[_Item]
) -> list[_Answer]:
    """The answers of ``act`` for each item, in order; in an object store many at a time.

    ``act`` waits for requests to the store. Every started call ends before the first error is
    raised.
    """
    if store.has_cheap_requests or len(items) < 2:
        return [act(each) for each in items]
    with ThreadPoolExecutor(min(STORE_THREADS, len(items))) as pool:
        return list(pool.map(act, items))


def remove_all(store: TableStore, paths: Iterable[str]) -> None:
    """Remove files; no error if one is missing."""
    for_each(store, store.remove, list(paths))
