"""The staging folder of one worker."""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from pathlib import Path
from typing import Final

from config.lake import is_bucket
from workers.lake.storage.store import storage_errors

_ID: Final = "id"
_UUID: Final = re.compile(r"[0-9a-f]{32}")


def own_place(place: str, data_dir: Path) -> str:
    """The part of a configured place that is this data directory's alone.

    Two of them number their subscriptions alike, and each removes what its dead workers left.
    Raises 58030 for a folder that is not there: one that is not mounted, say.
    """
    with storage_errors():
        if not is_bucket(place):
            os.scandir(place).close()
        folder = data_dir / "staging"
        folder.mkdir(mode=0o700, exist_ok=True)
        return f"{place}/{_own_id(folder / _ID)}"


def _own_id(path: Path) -> str:
    """What is in the file, whole: data directories must not come to share a name."""
    found = path.read_text() if path.exists() else None
    if found is not None and _UUID.fullmatch(found):
        return found
    partial = path.with_name(f"{_ID}_{uuid.uuid4().hex}")
    partial.touch(0o600)
    with partial.open("w") as file:
        file.write(uuid.uuid4().hex)
        file.flush()
        os.fsync(file.fileno())
    if found is not None:
        path.unlink(missing_ok=True)
    with contextlib.suppress(FileExistsError):  # another worker was first
        os.link(partial, path)
    partial.unlink()
    return path.read_text()
