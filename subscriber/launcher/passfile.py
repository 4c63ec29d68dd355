"""Password files: a password given with a connection goes to a 0600 file of the data directory.

libpq reads the file (``passfile=``), pgsub never does. A new password gets a new file name: a
running worker sees a changed connection.
"""

from __future__ import annotations

import os
import re
import secrets
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from catalog.errcodes import IoError
from config.conninfo import passfile_line
from config.limits import PASSFILE_UNNAMED_SECONDS

FOLDER: Final = "passfile"

_OURS: Final = re.compile(r".+\.[0-9a-f]{8}")


def write_passfile(data_dir: Path, subuuid: str, password: str) -> str:
    """Store ``password`` for any server; the file's path. 58030 if the disk refuses."""
    path = data_dir / FOLDER / f"{subuuid}.{secrets.token_hex(4)}"
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(passfile_line(password))
    except OSError as error:
        raise IoError(f'could not write password file "{path}": {error.strerror}') from None
    return str(path)


def has_password(path: str | None, password: str) -> bool:
    """Does the file have exactly the given password?"""
    if path is None:
        return False
    try:
        return Path(path).read_text(encoding="utf-8") == passfile_line(password)
    except OSError:
        return False


def remove_passfile(path: str | None) -> None:
    """Remove a password file; missing is fine."""
    if path is not None:
        Path(path).unlink(missing_ok=True)


def sweep_passfiles(data_dir: Path, used: Collection[str | None]) -> None:
    """Remove the files of killed CREATEs and DROPs; a young file may belong to a running command.

    Names are compared, not paths: a data directory may have several paths, and every name is
    unique.
    """
    names = {Path(path).name for path in used if path is not None}
    for path in (data_dir / FOLDER).glob("*"):
        with suppress(OSError):
            if (
                _OURS.fullmatch(path.name)
                and path.name not in names
                and time.time() - path.stat().st_mtime > PASSFILE_UNNAMED_SECONDS
            ):
                path.unlink()


@contextmanager
def temporary_passfile(password: str | None) -> Iterator[str | None]:
    """A password file for a single command; None without a password."""
    if password is None:
        yield None
        return
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="pgsub") as file:
        file.write(passfile_line(password))
        file.flush()
        yield file.name
