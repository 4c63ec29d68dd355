"""The file of the catalog: where it lies, who may read it, and what SQLite says of it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Final

from catalog.errcodes import IoError

FILE_NAME: Final = "catalog.db"


def read_queries() -> dict[str, str]:
    """``queries.sql`` as name → statement."""
    text = resources.files("catalog").joinpath("queries.sql").read_text(encoding="utf-8")
    blocks = text.split("-- name: ")[1:]
    return {name: sql.strip() for name, _, sql in (block.partition("\n") for block in blocks)}


def prepare_file(data_dir: Path) -> Path:
    """The catalog file of ``data_dir``, readable by its owner only."""
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = data_dir / FILE_NAME
        path.touch(mode=0o600, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise PermissionError(13, "Permission denied", str(path))
    except OSError as error:
        raise IoError(
            f'could not open data directory "{data_dir}": {error.strerror}',
            hint="Name a directory you may write to with --data-dir or PGSUB_DATA_DIR.",
        ) from None
    return path


@contextmanager
def sqlite_errors(path: str) -> Iterator[None]:
    """SQLite's own errors as ``IoError``; they name no values."""
    try:
        yield
    except sqlite3.Error as error:
        raise IoError(f'could not use the catalog "{path}": {error}') from error
