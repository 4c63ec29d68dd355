"""Errors of file systems: their code, and nothing that names a file."""

from __future__ import annotations

import errno

import pyarrow as pa
import pytest

from catalog.errcodes import IoError
from workers.lake.storage.file_errors import STAGED_FILES, TABLE_FILES, FileUse, file_errors, reason


@pytest.mark.parametrize("use", [STAGED_FILES, TABLE_FILES])
@pytest.mark.parametrize(
    ("error", "code", "detail"),
    [
        (OSError(errno.ENOSPC, "planted", "planted"), "53100", "No space left on device."),
        (FileNotFoundError(errno.ENOENT, "planted"), "58030", "No such file or directory."),
        (PermissionError("planted"), "58030", "PermissionError."),
        (
            OSError(
                "When reading 'planted': AWS Error ACCESS_DENIED during GetObject operation: x"
            ),
            "58030",
            "AWS Error ACCESS_DENIED during GetObject operation.",
        ),
    ],
)
def test_an_error_is_told_without_names(
    use: FileUse, error: OSError, code: str, detail: str
) -> None:
    with pytest.raises(IoError) as found, file_errors(use):
        raise error
    assert (found.value.code, found.value.detail) == (code, detail)
    assert (found.value.primary, found.value.hint) == (use.primary, use.hint)
    assert "planted" not in found.value.report()


def test_arrow_s_errors_name_files_and_are_told_without() -> None:
    with pytest.raises(IoError) as found, file_errors(TABLE_FILES):
        pa.OSFile("/planted/x", "rb")
    assert found.value.detail == "No such file or directory."


def test_other_errors_pass() -> None:
    with pytest.raises(pa.ArrowInvalid), file_errors(TABLE_FILES):
        raise pa.ArrowInvalid("damaged")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "google::cloud::Status(UNAVAILABLE: planted error_info={metadata={"
            "gcloud-cpp.retry.function=GetObjectMetadata, original-message=planted}})",
            "Google Error UNAVAILABLE during GetObjectMetadata",
        ),
        ("google::cloud::Status(UNAUTHENTICATED: planted)", "Google Error UNAUTHENTICATED"),
        (
            "GetProperties failed for 'https://planted'. Azure Error: [AuthorizationFailure] 403 x",
            "Azure Error AuthorizationFailure (HTTP status 403)",
        ),
        ("planted. Azure Error: [] Fail to get a new connection", "Azure Error NO_ANSWER"),
    ],
)
def test_the_words_of_google_and_azure_are_told_without_names(said: str, told: str) -> None:
    assert reason(OSError(said)) == told
    assert reason(FileNotFoundError(2, said)) == told
