"""The files by which a test stops a process at a named place (``workers.process.failpoints``)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.waiting import wait_until


class Failpoints:
    """The directory that ``PGSUB_FAILPOINT_DIR`` names to the processes of one family."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory

    def arm(self, *names: str, action: str = "") -> None:
        """The next process that comes to each of these places stops there, or does ``action``."""
        for name in names:
            fresh = self.directory / f".{name}"  # nobody may find it before it says what to do
            fresh.write_text(action)
            fresh.rename(self.directory / name)

    def disarm(self, *names: str) -> None:
        """Nobody stops there any more who is not held already."""
        for name in names:
            (self.directory / name).unlink(missing_ok=True)

    def held(self, name: str) -> int | None:
        """The pid of the process that stands at a place, or did there what it was to do."""
        for path in self.directory.glob(f"{name}.*"):
            return int(path.name.rpartition(".")[2])
        return None

    def visitors(self, name: str) -> int:
        """How many processes stand at a place, or did there what they were to do."""
        return len(list(self.directory.glob(f"{name}.*")))

    def wait_held(
        self, name: str, timeout: float = 60.0, how: Callable[[], Any] = lambda: "nobody came"
    ) -> int:
        """Wait until somebody stands there; the pid."""
        return wait_until(lambda: self.held(name), timeout, lambda: f"held at {name}: {how()}")

    def release(self, name: str) -> None:
        """Let whoever stands there go on; nothing if that process was killed."""
        for path in self.directory.glob(f"{name}.*"):
            path.unlink()

    def clear(self) -> None:
        """Disarm and release everything."""
        for path in self.directory.iterdir():
            path.unlink()
