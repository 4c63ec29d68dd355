"""A disk that loses power: an ext4 file system in a file, mounted at a folder.

What the file holds at a moment is what the disk would hold if the power failed then: the kernel
keeps the rest in memory for up to 30 s.
"""

from __future__ import annotations

import filecmp
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

SIZE = 1 << 30
OPTIONS = "loop,commit=30"
"""The journal is committed only when somebody asks for it, or after 30 s."""


@dataclass(slots=True)
class LoopDisk:
    """The file ``image`` mounted at ``folder``; skips the test where that cannot be done."""

    image: Path
    folder: Path

    def make(self) -> None:
        """An empty file system."""
        with self.image.open("wb") as file:
            file.truncate(SIZE)
        self._run_or_skip("mkfs.ext4", "-q", "-F", "-m", "0", str(self.image))
        self.folder.mkdir(mode=0o700)
        self.mount()
        self.folder.chmod(0o700)
        (self.folder / "lost+found").rmdir()

    def mount(self) -> None:
        """Mount what the file holds."""
        self._run_or_skip("mount", "-o", OPTIONS, str(self.image), str(self.folder))

    def unmount(self) -> None:
        """Take the disk away, also if a reader of this process has a file of it open."""
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)

    def cut(self, copy: Path) -> None:
        """Copy what the disk holds; two equal copies in a row are of one moment."""
        before = copy.with_suffix(".before")
        while True:
            for each in (before, copy):
                argv = ["cp", "--sparse=always", str(self.image), str(each)]
                subprocess.run(argv, check=True)
            if filecmp.cmp(before, copy, shallow=False):
                before.unlink()
                return

    def power_on(self, copy: Path) -> None:
        """Go on with a copy in the place of what was written since."""
        self.unmount()
        shutil.move(copy, self.image)
        self.mount()

    def _run_or_skip(self, *argv: str) -> None:
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
        except FileNotFoundError as error:
            pytest.skip(f"no loop device can be had: {error}")
        if done.returncode:
            pytest.skip(f"no loop device can be had: {done.stderr.strip()}")
