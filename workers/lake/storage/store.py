"""Where staged files lie: a folder that Spark sees under the same path, or an S3-compatible store.

A place is text: an absolute path, or ``s3://bucket/prefix`` (``s3a://``, where that is what Spark
calls it). Who may use a bucket is not written there: pyarrow takes credentials, region and endpoint
from the environment, a profile or the instance, as every AWS client does, and Spark has its own.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from pyarrow import fs

from catalog.errcodes import IoError, ReplicationError
from config.lake import is_bucket

log = logging.getLogger(__name__)

_ENOSPC: Final = 28
_AWS: Final = re.compile(r"AWS Error [A-Z_]+(?: \(HTTP status \d+\))? during \w+ operation")
_PATTERN: Final = re.compile(r"[][{}*?\\]")


def located(name: str) -> tuple[Any, str]:
    """The file system of a staged file or folder, and its path in it."""
    if is_bucket(name):
        path = name.split("://", 1)[1]
        return _bucket(path.split("/", 1)[0]), path
    return fs.LocalFileSystem(), name


@cache
def _bucket(name: str) -> Any:
    # By URI: only then pyarrow looks for AWS_ENDPOINT_URL, or else for the bucket's region.
    return fs.FileSystem.from_uri(f"s3://{name}")[0]


def for_spark(name: str) -> str:
    """The name under which Spark reads it. A bare path would be one of its default file system.

    Spark takes a path for a pattern, and its option not to (``__globPaths__``) does not get through
    Connect. A bucket's have no such characters.
    """
    return name if is_bucket(name) else "file:" + _PATTERN.sub(r"\\\g<0>", name)


def create(folder: str, file: str) -> str:
    """A new name for a file of the folder; of this machine's, an empty file that is private.

    The folder and the one it is in are made; what that is in must be there, or a shared folder
    that is not mounted would be made on the local disk.
    """
    if is_bucket(folder):
        return f"{folder}/{file}"
    for each in (Path(folder).parent, Path(folder)):
        with contextlib.suppress(FileExistsError):
            each.mkdir(mode=0o700)
    path = Path(folder) / file
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    return str(path)


def remove(name: str) -> None:
    """Remove a file; missing is fine. What a store keeps all the same goes with its folder."""
    if not is_bucket(name):
        Path(name).unlink(missing_ok=True)
        return
    with _tolerated():
        system, path = located(name)
        system.delete_file(path)


def remove_folders(place: str, prefix: str, *, keep: str = "") -> None:
    """Remove the folders of a place whose names begin with ``prefix``, but for ``keep``.

    One that stays is in nobody's way: names of staged files are never used again.
    """
    if not is_bucket(place):
        for folder in Path(place).glob(f"{prefix}*"):
            if str(folder) != keep:
                remove_folder(str(folder))
        return
    with storage_errors():
        system, path = located(place)
        for found in system.get_file_info(fs.FileSelector(path, allow_not_found=True)):
            name = f"{place}/{found.base_name}"
            if found.base_name.startswith(prefix) and name != keep:
                remove_folder(name)


def remove_folder(folder: str) -> None:
    """Remove a folder with what is in it; missing is fine."""
    if not is_bucket(folder):
        shutil.rmtree(folder, ignore_errors=True)
        return
    with _tolerated():
        system, path = located(folder)
        system.delete_dir(path)


@contextlib.contextmanager
def _tolerated() -> Iterator[None]:
    """What a store does not remove stays there, and is told of."""
    try:
        yield
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("action=staging could not remove staged files: %s", _reason(error))


@contextlib.contextmanager
def storage_errors() -> Iterator[None]:
    """What goes wrong with staged files as 53100 or 58030; never with a name or a value."""
    try:
        yield
    except OSError as error:
        raise _storage_error(error) from None


@contextlib.contextmanager
def table_errors() -> Iterator[None]:
    """The same of a lake table's own files."""
    try:
        yield
    except OSError as error:
        raise _io_error(
            "could not use the files of a lake table",
            error,
            "They lie in the table's location; all that its metadata names must be there, and we"
            " must be able to write, read and remove files in it.",
        ) from None


def _storage_error(error: OSError) -> ReplicationError:
    """The error a worker acts on."""
    return _io_error(
        "could not use the staging folder",
        error,
        'It is what "spark.staging" names, else "staging" in the data directory; it must be'
        " there, and we must be able to list, write, read and remove files in it.",
    )


def _io_error(primary: str, error: OSError, hint: str) -> ReplicationError:
    sqlstate = "53100" if error.errno == _ENOSPC else "58030"
    return IoError(primary, detail=f"{_reason(error)}.", hint=hint, sqlstate=sqlstate)


def _reason(error: OSError) -> str:
    """What a store says names buckets, hosts and requests: of that only AWS's own word."""
    if found := _AWS.search(f"{error}"):
        return found.group(0)
    return error.strerror or type(error).__name__
