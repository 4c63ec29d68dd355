"""Argument lists as everybody on the machine can read them, looked at again and again."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Self

PERIOD = 0.05
"""Seconds between two looks: a worker lives ten times as long at least."""


class ArgumentWatch:
    """Reads ``/proc/*/cmdline`` of the whole machine in a thread, as long as the block lasts.

    ``told`` are the argument lists that had one of ``words`` in them, ``parents`` the parent of
    each process when it was first seen.
    """

    def __init__(self, words: Collection[str]) -> None:
        self.told: list[str] = []
        self.parents: dict[int, int] = {}
        self._words = [word.encode() for word in words]
        self._seen: dict[int, set[bytes]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="argument watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether it still looks; an error would have ended it."""
        return self._thread.is_alive()

    def below(self, pid: int, word: str = "") -> set[int]:
        """The processes whose parent ``pid`` was, or one of these, and that had ``word`` in
        their arguments."""
        found: set[int] = set()
        fresh = {pid}
        while fresh:
            parents = list(self.parents.items())  # the thread goes on
            fresh = {child for child, parent in parents if parent in fresh} - found
            found |= fresh
        wanted = word.encode()
        return {child for child in found if any(wanted in each for each in list(self._seen[child]))}

    def _run(self) -> None:
        self._look()
        while not self._over.wait(PERIOD):
            self._look()

    def _look(self) -> None:
        for entry in os.listdir("/proc"):
            if not entry.isdecimal():
                continue
            try:
                arguments = Path("/proc", entry, "cmdline").read_bytes()
                self._note(int(entry), arguments)
            except OSError:
                continue  # it has ended meanwhile

    def _note(self, pid: int, arguments: bytes) -> None:
        if pid not in self.parents:
            state = Path("/proc", str(pid), "stat").read_text(errors="replace")
            self._seen[pid] = set()
            self.parents[pid] = int(state.rpartition(")")[2].split()[1])
        if arguments not in self._seen[pid]:
            self._seen[pid].add(arguments)
            if any(word in arguments for word in self._words):
                self.told.append(arguments.replace(b"\0", b" ").decode(errors="replace"))
