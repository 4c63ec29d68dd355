"""LocalStore: files on a disk that the worker and the lake server reach by the same path."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from workers.lake.storage.file_errors import STAGED_FILES, TABLE_FILES, file_errors
from workers.lake.storage.file_system import file_systems
from workers.lake.storage.local_path import is_local, local_path
from workers.lake.storage.store import TableStore

_PATTERN: Final = re.compile(r"[][{}*?\\]")
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL


@dataclass(frozen=True, slots=True)
class LocalStore(TableStore):
    """Files on a local disk.

    ``is_staging``: only the owner may read the files, and errors speak of the staging folder. Then
    at most two levels of folders are created: with more, a shared folder that is not mounted would
    be created on the local disk.
    """

    is_staging: bool = False

    def errors(self) -> AbstractContextManager[None]:
        """Turn an OSError of the block into 53100 or 58030."""
        return file_errors(STAGED_FILES if self.is_staging else TABLE_FILES)

    def holds(self, path: str) -> bool:
        """Does the path belong to a local file system?"""
        return is_local(path)

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        """Open a file for reading."""
        del size
        with self.errors():
            return pa.OSFile(str(local_path(path)), "rb")

    @contextlib.contextmanager
    def create(self, path: str, size: int | None = None) -> Iterator[pa.NativeFile]:
        """Write a new file; 58030 if the path exists. The disk takes any size alike."""
        del size
        place = local_path(path)
        with self.errors():
            self._create_empty(place)
            try:
                with pa.OSFile(str(place), "wb") as file:
                    yield file
            except BaseException:
                place.unlink(missing_ok=True)
                raise

    def _create_empty(self, place: Path) -> None:
        """Create an empty file: Arrow neither sets a file's mode nor refuses a path that exists."""
        mode = 0o600 if self.is_staging else 0o666
        try:
            descriptor = os.open(place, _NEW, mode)
        except FileNotFoundError:
            self._create_folders(place.parent)
            descriptor = os.open(place, _NEW, mode)
        os.close(descriptor)

    def _create_folders(self, folder: Path) -> None:
        if not self.is_staging:
            folder.mkdir(parents=True, exist_ok=True)
            return
        for each in (folder.parent, folder):
            with contextlib.suppress(FileExistsError):
                each.mkdir(mode=0o700)

    def size(self, path: str) -> int:
        """The file's size in bytes."""
        with self.errors():
            return local_path(path).stat().st_size

    def copy(self, path: str, to: str) -> None:
        """Make a hard link."""
        with self.errors():
            os.link(local_path(path), local_path(to))

    def remove(self, path: str) -> None:
        """Remove a file; no error if the file is missing."""
        with self.errors():
            local_path(path).unlink(missing_ok=True)

    def list_prefix(self, folder: str, prefix: str) -> list[str]:
        """The paths of a folder's files with ``prefix``."""
        with self.errors():
            found = list(local_path(folder).glob(f"{glob.escape(prefix)}*"))
        return [f"{folder}/{each.name}" for each in found]

    def remove_folder(self, folder: str) -> None:
        """Remove a folder; files that cannot be removed stay, without an error."""
        shutil.rmtree(local_path(folder), ignore_errors=True)

    def remove_folders(self, folder: str, prefix: str, *, keep: str = "") -> None:
        """Remove the folders in ``folder`` with ``prefix``, except the path ``keep``."""
        for each in local_path(folder).glob(f"{glob.escape(prefix)}*"):
            if str(each) != keep:
                self.remove_folder(str(each))

    def make_durable(self, folders: Collection[str]) -> None:
        """Synchronise the file systems of the folders; see ``file_system``.

        A folder that this machine does not have is left out: the server that writes the folder's
        files runs on another machine, with a disk of its own.
        """
        with self.errors():
            for each in file_systems(map(local_path, folders)):
                each.synchronise()

    def spark_path(self, path: str) -> str:
        """Escape the path and prefix ``file:``: a bare path is one of Spark's default file system.

        The default file system of a cluster need not be the local one.
        """
        return "file:" + _PATTERN.sub(r"\\\g<0>", str(local_path(path)))

    @property
    def is_stale(self) -> bool:
        """No: a folder needs no keys."""
        return False

    @property
    def has_cheap_requests(self) -> bool:
        """Yes: a local disk reads small ranges cheaply."""
        return True
