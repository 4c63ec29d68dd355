"""Remembered keys on the local disk, for data files that are expensive to read again.

A folder of the data directory has a file for each entry. A data file never changes, so an entry
stays valid. The name of an entry is a digest of the subject (file, columns, piece), the version of
the code that made the entry, and the secret seed.

A missing entry costs a look at the data file. Therefore no entry is synchronised, and every entry
ends with a checksum. An entry with a wrong checksum, as after a power cut, is removed.

All entries together have ``max_bytes`` at most. Entries that nobody used for
``KEY_CACHE_IDLE_SECONDS`` make room, the oldest first. Entries in use stay, and the new one is
refused: else every file of a too large table would take the place of the file that is needed next.
A new entry is refused, too, if the disk would have little room left for others.

An entry is an Arrow file. The arrays are mapped to memory: a search for few keys reads few pages,
and gives them back (``MappedArrays.let_go``). The system keeps what it has room for.
Processes with the folder in common share the entries, and any process may remove an entry. A
removed entry takes its room on the disk until the last process has dropped the map. So a process
notes its use of an entry (``use``), and drops entries that it does not use.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import secrets
import time
import zlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import suppress
from mmap import MADV_DONTNEED, PAGESIZE
from pathlib import Path
from shutil import disk_usage
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from config.limits import (
    KEY_BLOCK_ROWS,
    KEY_CACHE_IDLE_SECONDS,
    KEY_FILE_NOTED_SECONDS,
    KEY_FILE_READ_BYTES,
    KEY_FILES_SPARED_BYTES,
)
from workers.columnar.kernel import DIGEST
from workers.columnar.secret_hash import SECRET_BITS

Arrays = Mapping[str, npt.NDArray[Any]]
"""The arrays of a part of an entry, by name."""

_SEED: Final = "seed"
_SEED_LENGTH: Final = SECRET_BITS // 8
_SUM_LENGTH: Final = 4
_SUFFIX: Final = ".keys"
_TYPES: Final = "types"
"""The column with the types of the other columns. The types themselves would be a part of the
schema, and a part whose numbers take more bytes than those of the first would have another one."""


def _version() -> str:
    """The version of an entry's content: an entry of other code is not found."""
    digest = hashlib.sha256(f"{DIGEST} {KEY_BLOCK_ROWS}".encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


_VERSION: Final = _version()


class KeyFiles:
    """Entries in ``folder``, which is made if it is missing. Raises OSError if that fails."""

    def __init__(
        self, folder: Path, max_bytes: int, clock: Callable[[], float] = time.time
    ) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._clock = clock
        self._refused_at = -KEY_FILE_NOTED_SECONDS
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._key = _secret(folder)
        self.secret = int.from_bytes(self._key)

    def load(self, of: Hashable) -> list[MappedArrays] | None:
        """The parts of an entry; None if there is none, or it is damaged."""
        path = self._path(of)
        try:
            if not _is_whole(path):
                path.unlink(missing_ok=True)
                return None
            self.use(of)
            with pa.memory_map(str(path)) as mapped:
                whole = mapped.read_buffer()
            parts = pa.ipc.open_file(pa.BufferReader(whole.slice(0, len(whole) - _SUM_LENGTH)))
            return [_arrays(parts.get_batch(n), whole) for n in range(parts.num_record_batches)]
        except (OSError, pa.ArrowInvalid):
            return None

    def use(self, of: Hashable) -> bool:
        """Note that an entry is used now; False if the entry was removed."""
        now = self._clock()
        with suppress(OSError):
            os.utime(self._path(of), (now, now))
            return True
        return False

    def new(self, of: Hashable, size: int) -> NewKeyFile | None:
        """A new entry of about this size; None if there is no room.

        After a refusal there is no room for a while: to look for room takes longer than a search.
        """
        now = self._clock()
        if size > self._max_bytes or abs(now - self._refused_at) < KEY_FILE_NOTED_SECONDS:
            return None
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, exist_ok=True)  # anybody may remove the folder
            has_room = disk_usage(self._folder).free - size >= KEY_FILES_SPARED_BYTES
            if has_room and self.make_room(size):
                return NewKeyFile(self, self._path(of))
        self._refused_at = now
        return None

    def make_room(self, size: int, new: Path | None = None) -> bool:
        """Remove old entries until the file ``new``, which has this size, fits; False if it cannot.

        Raises OSError if the disk refuses.
        """
        found = []
        for path in self._folder.glob(f"*{_SUFFIX}*"):  # a killed process left the start of one
            if path == new:
                continue
            with suppress(FileNotFoundError):  # another process removed the entry
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path))
        too_much = size + sum(each for _, each, _ in found) - self._max_bytes
        now = self._clock()
        # The clock may have been set back: what was used in the future counts as old, too.
        old = [each for each in sorted(found) if abs(now - each[0]) > KEY_CACHE_IDLE_SECONDS]
        if sum(each for _, each, _ in old) < too_much:
            return False
        for _, each, path in old:
            if too_much <= 0:
                break
            path.unlink(missing_ok=True)
            too_much -= each
        return True

    def _path(self, of: Hashable) -> Path:
        what = repr((_VERSION, of)).encode()
        digest = hashlib.blake2b(what, key=self._key).hexdigest()
        return self._folder / f"{digest}{_SUFFIX}"


class NewKeyFile:
    """An entry that is being written. A disk that refuses costs the entry, and is no error."""

    def __init__(self, files: KeyFiles, path: Path) -> None:
        self._files = files
        self._path = path
        self._partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}.partial")
        self._sink: Any = None
        self._file: Any = None
        self._is_lost = False

    def add(self, arrays: Arrays) -> None:
        """Write a part."""
        if self._is_lost:
            return
        try:
            batch = _batch(arrays)
            if self._file is None:
                os.close(os.open(self._partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
                self._sink = pa.OSFile(str(self._partial), "wb")
                self._file = pa.ipc.new_file(self._sink, batch.schema)
            self._file.write_batch(batch)
        except (OSError, pa.ArrowException):
            self.discard()

    def finish(self) -> bool:
        """Make the entry visible; False if the disk refused, or there is no part."""
        if self._file is None:
            return False
        try:
            self._close()
            with self._partial.open("r+b") as file:
                total = _sum(file, os.fstat(file.fileno()).st_size)
                file.write(total.to_bytes(_SUM_LENGTH))
                size = file.tell()
            if not self._files.make_room(size, self._partial):
                raise OSError("the entry is too large")
            self._partial.rename(self._path)
        except (OSError, pa.ArrowException):
            self.discard()
            return False
        return True

    def discard(self) -> None:
        """Remove what is written."""
        self._is_lost = True
        with suppress(OSError, pa.ArrowException):
            self._close()
        with suppress(OSError):
            self._partial.unlink(missing_ok=True)

    def _close(self) -> None:
        file, sink, self._file, self._sink = self._file, self._sink, None, None
        try:
            if file is not None:
                file.close()
        finally:
            if sink is not None:
                sink.close()


class MappedArrays(dict[str, npt.NDArray[Any]]):
    """The arrays of a part, in pages of a file that is mapped at ``whole``."""

    def __init__(self, arrays: Arrays, whole: pa.Buffer) -> None:
        super().__init__(arrays)
        self._whole = whole

    def let_go(self) -> None:
        """Give the pages back. The next access finds them in the system's cache, or in the file.

        Memory that is not of the file would lose its content, and so is left alone.
        """
        filled = [array for array in self.values() if array.nbytes]
        if _MADVISE is None or not filled:
            return
        first = min(array.ctypes.data for array in filled) // PAGESIZE * PAGESIZE
        end = max(array.ctypes.data + array.nbytes for array in filled)
        if self._whole.address <= first and end <= self._whole.address + self._whole.size:
            _MADVISE(first, end - first, MADV_DONTNEED)


def _madvise() -> Any:
    """The C library's function; None if the system has none."""
    with suppress(OSError, AttributeError):
        function = ctypes.CDLL(None).madvise
        function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        return function
    return None


_MADVISE: Final = _madvise()


def open_key_files(folder: Path | None, max_bytes: int) -> KeyFiles | None:
    """The entries of a folder; None without a folder, without bytes, or if the disk refuses."""
    if folder is None or not max_bytes:
        return None
    with suppress(OSError):
        return KeyFiles(folder, max_bytes)
    return None


def _secret(folder: Path) -> bytes:
    """The folder's seed; the first process makes the seed."""
    path = folder / _SEED
    with suppress(FileNotFoundError):
        if len(found := path.read_bytes()) == _SEED_LENGTH:
            return found
    mine = path.with_name(f"{_SEED}.{secrets.token_hex(4)}.partial")
    try:
        with os.fdopen(os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(_SEED_LENGTH))
            file.flush()
            os.fsync(file.fileno())  # zeros, as a power cut leaves them, are no secret
        with suppress(FileExistsError):
            os.link(mine, path)
        if path.stat().st_size != _SEED_LENGTH:  # a power cut left an empty file
            mine.replace(path)
        return path.read_bytes()
    finally:
        mine.unlink(missing_ok=True)


def _batch(arrays: Arrays) -> pa.RecordBatch:
    """A part as a batch of one row: a value of bytes for each array, and the types."""
    values: list[Any] = [_as_value(array) for array in arrays.values()]
    types = pa.array([" ".join(array.dtype.str for array in arrays.values())])
    return pa.RecordBatch.from_arrays([*values, types], [*arrays, _TYPES])


def _as_value(array: npt.NDArray[Any]) -> pa.Array[Any]:
    """An array's bytes as a column with one value, without a copy."""
    offsets: Any = np.array([0, array.nbytes])
    content: Any = np.ascontiguousarray(array).reshape(-1)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.large_binary(), 1, buffers)


def _arrays(batch: pa.RecordBatch, whole: pa.Buffer) -> MappedArrays:
    *names, _ = batch.schema.names
    types = batch.column(_TYPES)[0].as_py().split()
    arrays = {
        name: np.frombuffer(_value_of(batch.column(name)), np.dtype(type))
        for name, type in zip(names, types, strict=True)
    }
    return MappedArrays(arrays, whole)


def _value_of(column: Any) -> Any:
    """The bytes of a column with one value, where the file is mapped: a scalar has a copy."""
    _, offsets, content = column.buffers()
    begin, end = np.frombuffer(offsets, np.int64)[column.offset : column.offset + 2].tolist()
    return pa.py_buffer(b"") if content is None else content.slice(begin, end - begin)


def _is_whole(path: Path) -> bool:
    with path.open("rb") as file:
        rest = os.fstat(file.fileno()).st_size - _SUM_LENGTH
        return rest > 0 and _sum(file, rest) == int.from_bytes(file.read())


def _sum(file: Any, size: int) -> int:
    """The checksum of the next ``size`` bytes."""
    total = 0
    for piece in _pieces(file, size):
        total = zlib.crc32(piece, total)
    return total


def _pieces(file: Any, size: int) -> Iterator[bytes]:
    while size > 0 and (piece := file.read(min(size, KEY_FILE_READ_BYTES))):
        yield piece
        size -= len(piece)
