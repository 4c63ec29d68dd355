"""Errors of file systems and object stores, as the errors that a worker reports.

An ``OSError`` becomes 53100 (no space left) or 58030 (any other failure). The text never
quotes a file name, bucket, host, key or value. From the original error only the system's text for
the error number is used, or the words and numbers with which a store names the failure.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from catalog.errcodes import DISK_FULL, IO_ERROR, IoError

_AWS: Final = re.compile(r"AWS Error [A-Z_]+(?: \(HTTP status \d+\))? during \w+ operation")
_GOOGLE: Final = re.compile(r"google::cloud::Status\(([A-Z_]+):")
_GOOGLE_CALL: Final = re.compile(r"gcloud-cpp\.retry\.function=(\w+)")
_GOOGLE_STATUS: Final = re.compile(r"http_status_code=(\d{3})")
_AZURE: Final = re.compile(r"Azure Error: \[(\w*)\](?: (\d{3}))?")


@dataclass(frozen=True, slots=True)
class FileUse:
    """The purpose of files, as error message and hint name the purpose."""

    primary: str
    hint: str


TABLE_FILES: Final = FileUse(
    "could not use the files of a lake table",
    "They lie in the table's location; all that its metadata names must be there, and we"
    " must be able to write, read and remove files in it.",
)

STAGED_FILES: Final = FileUse(
    "could not use the staging folder",
    'It is what "spark.staging" names, else "staging" in the data directory; it must be'
    " there, and we must be able to list, write, read and remove files in it.",
)


@contextlib.contextmanager
def file_errors(use: FileUse) -> Iterator[None]:
    """Turn an OSError of the block into 53100 or 58030, worded for this use of files."""
    try:
        yield
    except OSError as error:
        sqlstate = DISK_FULL if error.errno == errno.ENOSPC else IO_ERROR
        raise IoError(
            use.primary, detail=f"{reason(error)}.", hint=use.hint, sqlstate=sqlstate
        ) from None


def reason(error: OSError) -> str:
    """The reason of a failure, without the names that the error's text may quote."""
    said = f"{error}"
    if found := _AWS.search(said):
        return found.group(0)
    if found := _GOOGLE.search(said):
        status, call = _GOOGLE_STATUS.search(said), _GOOGLE_CALL.search(said)
        number = f" (HTTP status {status[1]})" if status else ""
        return f"Google Error {found[1]}{number}" + (f" during {call[1]}" if call else "")
    if found := _AZURE.search(said):
        number = f" (HTTP status {found[2]})" if found[2] else ""
        return f"Azure Error {found[1] or 'NO_ANSWER'}{number}"
    return os.strerror(error.errno) if error.errno else type(error).__name__
