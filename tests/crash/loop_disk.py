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
        self.folder.mkdir(mode=0o700)
        try:
            _run("mkfs.ext4", "-q", "-F", "-m", "0", str(self.image))
            self.mount()
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no loop device can be had: {getattr(error, 'stderr', None) or error}")
        self.folder.chmod(0o700)
        (self.folder / "lost+found").rmdir()

    def mount(self) -> None:
        """Mount what the file holds."""
        _run("mount", "-o", OPTIONS, str(self.image), str(self.folder))

    def unmount(self, *options: str) -> None:
        """Take the disk away; nobody may have a file of the disk open, unless ``--lazy``.

        An SQLite connection that outlived its disk would remove the next disk's log by its name.
        """
        _run("umount", *options, str(self.folder))

    def cut(self, copy: Path) -> None:
        """Copy what the disk holds; two equal copies in a row are of one moment."""
        before = copy.with_suffix(".before")
        while True:
            for each in (before, copy):
                _run("cp", "--sparse=always", str(self.image), str(each))
            if filecmp.cmp(before, copy, shallow=False):
                before.unlink()
                return

    def power_on(self, copy: Path) -> None:
        """Go on with a copy in the place of what was written since."""
        self.unmount()
        shutil.move(copy, self.image)
        self.mount()


def _run(*argv: str) -> None:
    subprocess.run(argv, capture_output=True, text=True, check=True)
