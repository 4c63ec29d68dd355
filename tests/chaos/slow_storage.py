"""Storage that is slow: every opening, reading and writing of a file below a folder takes its turn.

    python slow_storage.py FOLDER MILLISECONDS

The kernel asks this process (fanotify; Linux, as root) before anybody opens, reads or writes such
a file, and it answers one after the other, each after so many milliseconds, as a slow disk would.
Before Linux 6.14 there is no asking for writes: there files are opened and read slowly only.

It writes ``ready`` once the folder is watched, goes on until its standard input ends, and writes
then how many operations had to wait. When it dies the kernel lets everything pass. It must be a
process of its own: who answers may neither open a file there nor wait for a lock of somebody who
does.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_CLOEXEC: Final = 0x1
_CLASS_PRE_CONTENT: Final = 0x8
_UNLIMITED: Final = 0x10 | 0x20  # events waiting, and marks
_MARK_ADD: Final = 0x1
_OPEN_PERM: Final = 0x0001_0000
_ACCESS_PERM: Final = 0x0002_0000
_PRE_ACCESS: Final = 0x0010_0000  # reads and writes
_EVENT_ON_CHILD: Final = 0x0800_0000
_ALLOW: Final = 1

_A_FEW: Final = 64  # bytes: one event that tells a range, or two that do not
_EVENT: Final = struct.Struct("IBBHQii")
_ANSWER: Final = struct.Struct("iI")
_LOOK_EVERY: Final = 0.2
"""Seconds between two looks for new folders."""

_LIBC: Final = ctypes.CDLL(None, use_errno=True)


class Watch:
    """A folder and all below it; folders that are made later are seen by ``look``."""

    def __init__(self, folder: Path) -> None:
        flags = _CLASS_PRE_CONTENT | _CLOEXEC | _UNLIMITED
        self.fd = _done(_LIBC.fanotify_init(flags, os.O_RDONLY | os.O_LARGEFILE | os.O_CLOEXEC))
        self._asked_for = _OPEN_PERM | _PRE_ACCESS
        self._seen: dict[str, int] = {}
        try:
            self._add(str(folder))
        except OSError:
            self._asked_for = _OPEN_PERM | _ACCESS_PERM
            self._add(str(folder))
        self.look()

    def look(self) -> None:
        """Watch folders that have come; only where something came or went is looked."""
        unread = list(self._seen)
        while unread:
            path = unread.pop()
            try:
                changed = os.stat(path).st_mtime_ns
                if changed == self._seen[path]:
                    continue
                self._seen[path] = changed
                for entry in os.scandir(path):
                    if entry.path not in self._seen and entry.is_dir(follow_symlinks=False):
                        self._add(entry.path)
                        unread.append(entry.path)
            except FileNotFoundError:
                self._seen.pop(path, None)

    def _add(self, path: str) -> None:
        mask = ctypes.c_uint64(self._asked_for | _EVENT_ON_CHILD)
        _done(_LIBC.fanotify_mark(self.fd, _MARK_ADD, mask, -1, os.fsencode(path)))
        self._seen[path] = -1


def _done(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def answer_slowly(watch: Watch, pause: float) -> int:
    """Until standard input ends; how many operations waited ``pause`` seconds each."""
    waited, looked = 0, time.monotonic()
    while True:
        ready, _, _ = select.select([watch.fd, sys.stdin], [], [], _LOOK_EVERY)
        if sys.stdin in ready:
            return waited
        if ready:
            # No more at a time than a few: what is read and not answered hangs.
            for file in _files(os.read(watch.fd, _A_FEW)):
                time.sleep(pause)
                with suppress(FileNotFoundError):  # whoever waited was killed
                    os.write(watch.fd, _ANSWER.pack(file, _ALLOW))
                os.close(file)
                waited += 1
        if time.monotonic() > looked + _LOOK_EVERY:
            watch.look()
            looked = time.monotonic()


def _files(events: bytes) -> Iterator[int]:
    """The descriptor of each event's file."""
    at = 0
    while at < len(events):
        length, _, _, _, _, file, _ = _EVENT.unpack_from(events, at)
        yield file
        at += length


def main() -> int:
    """Watch the folder of the command line; exit status 1 if the kernel does not let us."""
    folder, milliseconds = sys.argv[1:]
    try:
        watch = Watch(Path(folder))
    except OSError as error:
        print(f"the kernel does not let us watch a folder: {error.strerror}", flush=True)
        return 1
    print("ready", flush=True)
    print(answer_slowly(watch, float(milliseconds) / 1000))
    return 0


if __name__ == "__main__":
    sys.exit(main())
