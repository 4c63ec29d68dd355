"""The staging folders of one data directory: their place, and removing those of dead workers.

Several data directories may be configured with one staging place, and each numbers its
subscriptions from 1. So each gets a folder of its own in the place, with a UUID as its name. The
UUID is in the file ``staging/id`` of the data directory.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from pathlib import Path
from typing import Final

from config.lake import is_bucket
from workers.lake.storage.choose_store import staging_store
from workers.lake.storage.file_errors import STAGED_FILES, file_errors

_ID: Final = "id"
_UUID: Final = re.compile(r"[0-9a-f]{32}")


def own_place(place: str, data_dir: Path) -> str:
    """The folder of this data directory in a configured place.

    58030 if the place is a folder that does not exist, because it is not mounted for example.
    """
    with file_errors(STAGED_FILES):
        if not is_bucket(place):
            os.scandir(place).close()
        folder = data_dir / "staging"
        folder.mkdir(mode=0o700, exist_ok=True)
        return f"{place}/{_own_id(folder / _ID)}"


def remove_folder(folder: str) -> None:
    """Remove a folder with its staged files; no error if it does not exist."""
    staging_store(folder).remove_folder(folder)


def remove_folders(place: str, prefix: str, *, keep: str = "") -> None:
    """Remove the folders of a place with names that begin with ``prefix``, except ``keep``.

    A folder that cannot be removed does no harm: names of staged files are never used again.
    """
    staging_store(place).remove_folders(place, prefix, keep=keep)


def _own_id(path: Path) -> str:
    """Read the UUID from the file, or create both.

    The file appears complete or not at all: two data directories must never share a name, and two
    workers of one data directory must agree.
    """
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
