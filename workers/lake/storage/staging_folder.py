"""The staging folder of a data directory, and removing the folders of dead workers.

Several data directories may use the same staging place, and all number their subscriptions from 1.
So a data directory has a folder in the place, with a UUID as the folder's name. The UUID stands in
the file ``staging/id`` of the data directory.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from pathlib import Path
from typing import Final

from workers.lake.storage.bucket import is_in_bucket
from workers.lake.storage.choose_store import staging_store
from workers.lake.storage.file_errors import STAGED_FILES, file_errors

_ID: Final = "id"
_UUID: Final = re.compile(r"[0-9a-f]{32}")


def own_place(place: str, data_dir: Path) -> str:
    """The folder of a data directory in a configured place.

    58030 if the place is a missing folder, for example one that is not mounted.
    """
    with file_errors(STAGED_FILES):
        if not is_in_bucket(place):
            os.scandir(place).close()
        folder = data_dir / "staging"
        folder.mkdir(mode=0o700, exist_ok=True)
        return f"{place}/{_own_id(folder / _ID)}"


def remove_folder(folder: str) -> None:
    """Remove a folder with the staged files in the folder; no error if the folder is missing."""
    staging_store(folder).remove_folder(folder)


def remove_folders(place: str, prefix: str, *, keep: str = "") -> None:
    """Remove the folders of a place with names that begin with ``prefix``, except ``keep``.

    A folder that cannot be removed does no harm: names of staged files are never used again.
    """
    staging_store(place).remove_folders(place, prefix, keep=keep)


def _own_id(path: Path) -> str:
    """Read the UUID from the file, or create a UUID and the file.

    The file appears complete or not at all. Two data directories must never share a UUID, and all
    workers of a data directory must read the same UUID.
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
