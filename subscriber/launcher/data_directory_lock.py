"""One family of processes per data directory: the lock that all of them hold together.

The lock is ``flock`` on an open file which every child of the launcher inherits, the lake server
too. It is free only when the last of them is gone, so a new launcher cannot start while a worker
of a killed one is still inside a commit. The pid in the file is for people, and told only where it
means something: in a container it is always 1, and another host's pids mean nothing here.
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
    """The lock while it is held; ``fd`` is what children inherit."""

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
        """Take the lock; ``on_wait`` is told once whom it waits for.

        Raises 55006 naming the processes that hold it after ``wait`` seconds, 55000 where the file
        system has no working flock, 58030 where the file cannot be made.
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
        """Write who holds the lock into the file; None: nobody does any more."""
        content = b"" if info is None else info.to_json()
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, content, 0)

    def release(self) -> None:
        """Close our descriptor; the lock is free once every child has ended as well.

        The file stays: removing it would let two launchers lock two files of one name.
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
    """A second open of the file must not get the lock that we hold: some mounts pretend."""
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
    """The processes that hold the lock, for people."""
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
    """Other processes that have the file open, as far as /proc shows them to us."""
    found = []
    try:
        wanted = path.stat()
    except OSError:
        return []
    for folder in Path("/proc").glob("[0-9]*/fd"):
        pid = int(folder.parent.name)
        if pid != os.getpid() and _holds(folder, wanted):
            found.append(pid)
    return sorted(found)


def _holds(folder: Path, wanted: os.stat_result) -> bool:
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
