"""Class archives that an installation holds compressed, as an image does: unpacked at first use.

The archive of the lake server's classes is 200 MB, and compressed a seventh of that. An image
holds the archive as ``NAME.jsa.xz``. The first start writes the archive to the user's cache, which
is on the container's volume, and later starts map the file from there. The name of the unpacked
file has the size and the time of the compressed file: a newer image on the same volume unpacks its
own archive, and removes the old. The file is on the disk before it gets its name, because the JVM
trusts what it maps. Without room, or without a folder, a start does without the archive.
"""

from __future__ import annotations

import contextlib
import lzma
import os
import secrets
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from config.limits import CLASS_DUMP_STALE_SECONDS

SUFFIX: Final = ".xz"


def packed(archive: Path) -> Path:
    """Where an installation holds an archive compressed."""
    return archive.with_name(archive.name + SUFFIX)


def unpacked(archives: Sequence[Path], folder: Path) -> list[Path | None]:
    """The archives in ``folder``, unpacked if need be; None for one that cannot be. Never raises.

    Anything else in the folder is removed first, but for young unfinished files: those of other
    processes.
    """
    targets = [_target(packed(archive), folder) for archive in archives]
    with contextlib.suppress(OSError):
        _sweep(folder, [target for target in targets if target is not None])
    found: list[Path | None] = []
    for archive, target in zip(archives, targets, strict=True):
        try:
            if target is not None and not target.is_file():
                _unpack(packed(archive), target)
            found.append(target)
        except (OSError, EOFError, lzma.LZMAError):
            found.append(None)
    return found


def _target(source: Path, folder: Path) -> Path | None:
    try:
        known = source.stat()
    except OSError:
        return None
    name = source.name.removesuffix(SUFFIX).removesuffix(".jsa")
    return folder / f"{name}-{known.st_mtime_ns:x}-{known.st_size:x}.jsa"


def _unpack(source: Path, target: Path) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = target.with_suffix(f".{secrets.token_hex(4)}")
    try:
        with lzma.open(source) as compressed, partial.open("xb") as plain:
            shutil.copyfileobj(compressed, plain, 1 << 20)
            plain.flush()
            os.fsync(plain.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _sweep(folder: Path, kept: Sequence[Path]) -> None:
    """Remove archives of earlier images, and what killed processes have left unfinished."""
    for path in folder.iterdir():
        young = time.time() - path.stat().st_mtime < CLASS_DUMP_STALE_SECONDS
        if path not in kept and not (young and path.suffix != ".jsa"):
            path.unlink()
