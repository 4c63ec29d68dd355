"""The lock of a data directory: the launcher and its processes hold the lock together.

The lock is ``flock`` on an open file. Every child of the launcher inherits the file, the lake
server too. The lock is free only after the last process has ended: a new launcher cannot start
while a worker of a killed launcher is still inside a commit. The file also has the launcher's pid,
for messages. A message names the pid only if the launcher ran in the reader's PID namespace: in a
container the pid is always 1, and pids of another host are of no use here.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from catalog.errcodes import IoError, ObjectInUse, ObjectNotInPrerequisiteState
from config.limits import PREDECESSOR_EXIT_SECONDS, PREDECESSOR_POLL_SECONDS
from workers.process.launcher_socket import LOCK_FILE, LockInfo, own_pid_space, read_lock_file

_NOT_SUPPORTED: Final = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


class DataDirectoryLock:
    """A lock that was taken; children inherit ``fd``."""

    def __init__(self, data_dir: Path, fd: int) -> None:
        self.fd = fd
        self._data_dir = data_dir

    @classmethod
    def acquire(
        cls,
        data_dir: Path,
        *,
        wait: float = PREDECESSOR_EXIT_SECONDS,
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> DataDirectoryLock:
        """Take the lock; a wait calls ``on_wait`` once, with the holders.

        After ``wait`` seconds raises 55006 with the holders; 55000 where the file system has no
        working flock, 58030 where the file cannot be created.
        """
        fd = _open(data_dir)
        try:
            deadline = time.monotonic() + wait
            waiting = False
            while not _try(fd, data_dir):
                if time.monotonic() >= deadline:
                    raise ObjectInUse(
                        f'data directory "{data_dir}" is used by another pgsub',
                        detail=f"The lock is held by {_holders(data_dir)}.",
                        hint="Stop that launcher first, or use another --data-dir.",
                    )
                if not waiting:
                    waiting = True
                    on_wait(_holders(data_dir))
                time.sleep(PREDECESSOR_POLL_SECONDS)
            _must_exclude(data_dir)
        except BaseException:
            os.close(fd)
            raise
        return cls(data_dir, fd)

    def describe(self, info: LockInfo | None) -> None:
        """Write the holder into the file; None: empty the file."""
        content = b"" if info is None else info.to_json()
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, content, 0)

    def release(self) -> None:
        """Close the launcher's descriptor; the lock is free once every child has ended as well.

        The file stays: after a removal, two launchers could lock two files of the same name.
        """
        os.close(self.fd)


def _open(data_dir: Path) -> int:
    path = data_dir / LOCK_FILE
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise IoError(
            f'could not open lock file "{path}": {error.strerror}',
            hint="Name a directory you may write to with --data-dir or PGSUB_DATA_DIR.",
        ) from None


def _try(fd: int, data_dir: Path) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _NOT_SUPPORTED:
            raise _no_flock(data_dir) from None
        raise
    return True


def _must_exclude(data_dir: Path) -> None:
    """Check that a second open of the file cannot take the lock: some mounts grant both."""
    fd = _open(data_dir)
    try:
        if _try(fd, data_dir):
            raise _no_flock(data_dir)
    finally:
        os.close(fd)


def _no_flock(data_dir: Path) -> ObjectNotInPrerequisiteState:
    return ObjectNotInPrerequisiteState(
        f'the file system of data directory "{data_dir}" has no file locks',
        detail="Without flock two launchers could write the same lake tables.",
        hint="Put the data directory on a local file system; the lake may stay where it is.",
    )


def _holders(data_dir: Path) -> str:
    """The processes with the lock, in words for a message."""
    info = read_lock_file(data_dir)
    pids = _open_in(data_dir / LOCK_FILE)
    if info is not None and info.pid_space != own_pid_space():
        here = f" (here PID {', '.join(map(str, pids))})" if pids else ""
        return f"a launcher of another host or container{here}, or a process that it started"
    if info is not None and info.pid in pids:
        return f"the launcher with PID {info.pid}"
    if pids:
        return f"PID {', '.join(map(str, pids))}, left by a launcher that has ended"
    if info is not None:
        return f"the launcher with PID {info.pid}, or a process that it started"
    return "a process of another host or container"


def _open_in(path: Path) -> list[int]:
    """The pids with the file open, but for the calling process, as far as /proc may be read."""
    found = []
    try:
        wanted = path.stat()
    except OSError:
        return []
    for folder in Path("/proc").glob("[0-9]*/fd"):
        pid = int(folder.parent.name)
        if pid != os.getpid() and _has_open(folder, wanted):
            found.append(pid)
    return sorted(found)


def _has_open(folder: Path, wanted: os.stat_result) -> bool:
    try:
        entries = list(folder.iterdir())
    except OSError:
        return False
    for entry in entries:
        try:
            if os.path.samestat(entry.stat(), wanted):
                return True
        except OSError:
            continue
    return False
