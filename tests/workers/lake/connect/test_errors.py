"""Which of the lake server's words mean that it has to be started again."""

from __future__ import annotations

import pytest
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

from catalog.errcodes import LakeBroken, ReplicationError
from workers.lake.connect.errors import (
    FileMissing,
    LakeFailure,
    as_replication_error,
    is_commit_conflict,
    repeated,
)

LINK = "'void org.sqlite.core.NativeDB._open_utf8(byte[], int)'"
TASK = """org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:3000)
Caused by: java.lang.NoClassDefFoundError: Could not initialize class com.github.luben.zstd.Zstd
\tat org.apache.iceberg.parquet.ParquetWriter.close(ParquetWriter.java:260)"""
CALL = (
    "<_InactiveRpcError of RPC that terminated with:\n\tstatus = StatusCode.UNKNOWN\n"
    '\tdetails = "{0}"\n\tdebug_error_string = "UNKNOWN:{0}"\n>'
)
FULL = "Out of space in CodeCache for adapters"
MISSING = "Caused by: java.lang.NoClassDefFoundError: software/amazon/awssdk/core/Sdk"
SAYS_ANYTHING = (
    "[CAST_INVALID_INPUT] The value 'x\njava.lang.VirtualMachineError: Out of space in CodeCache"
    " Permission denied channel closed OPERATION_CANCELED No space left on device' of the type"
    ' "STRING" cannot be cast to "INT". SQLSTATE: 22018'
)
QUOTED = "cannot cast 'java.lang.UnsatisfiedLinkError: no' to INT"


def failure(message: str, reason: str | None = None, trace: str | None = None) -> ReplicationError:
    error = SparkConnectGrpcException(message, reason=reason, server_stacktrace=trace)
    return as_replication_error(error, 'reading lake table "s.t"')


@pytest.mark.parametrize(
    ("message", "reason", "trace", "named"),
    [
        (LINK, "java.lang.UnsatisfiedLinkError", None, "UnsatisfiedLinkError"),
        ("it failed", None, f"java.lang.UnsatisfiedLinkError: {LINK}", "UnsatisfiedLinkError"),
        (CALL.format(LINK), None, None, "LinkageError"),
        (CALL.format("Could not initialize class a.B$C"), None, None, "LinkageError"),
        (CALL.format(FULL), None, None, "LinkageError"),
        ("it failed", None, f"java.lang.VirtualMachineError: {FULL}", "VirtualMachineError"),
        ("null", "java.lang.ExceptionInInitializerError", None, "ExceptionInInitializerError"),
        ("Job aborted", "org.apache.spark.SparkException", TASK, "NoClassDefFoundError"),
    ],
)
def test_a_class_that_java_gave_up_on(
    message: str, reason: str | None, trace: str | None, named: str
) -> None:
    error = failure(message, reason, trace)
    assert isinstance(error, LakeBroken)
    assert (error.code, error.primary, error.detail) == (
        "08006",
        'the lake server cannot go on while reading lake table "s.t"',
        f"{named}: Java gave up on a class that it needs.",
    )


OPEN_FILES = "/lake/t/data/00000-0-a.parquet (Too many open files)"
NO_THREAD = "unable to create native thread: possibly out of memory or process/resource limits"


@pytest.mark.parametrize(
    ("message", "reason", "trace", "detail"),
    [
        (OPEN_FILES, "java.io.FileNotFoundException", None, "Too many open files."),
        (
            "it failed",
            None,
            "org.apache.iceberg.exceptions.RuntimeIOException: Failed\n"
            "Caused by: java.nio.file.FileSystemException: /lake/t: Too many open files in system",
            "Too many open files.",
        ),
        (
            "it failed",
            None,
            f"java.lang.OutOfMemoryError: {NO_THREAD}",
            "Unable to create native thread.",
        ),
    ],
)
def test_a_server_without_descriptors_or_threads_has_lost_no_file(
    message: str, reason: str | None, trace: str | None, detail: str
) -> None:
    error = failure(message, reason, trace)
    assert isinstance(error, LakeBroken)
    assert error.detail == detail


@pytest.mark.parametrize(
    ("message", "reason", "trace"),
    [
        ("it failed", "org.apache.spark.SparkException", MISSING),
        ("cannot cast 'Too many open files' to INT", "org.apache.spark.SparkException", None),
        (QUOTED, "org.apache.spark.SparkException", f"org.apache.spark.SparkException: {QUOTED}"),
    ],
    ids=["a jar is missing", "a value about files", "a row's value"],
)
def test_what_another_server_would_meet_too(message: str, reason: str, trace: str | None) -> None:
    assert not isinstance(failure(message, reason, trace), LakeBroken)


@pytest.mark.parametrize(
    ("message", "reason", "trace", "detail"),
    [
        (
            "it failed",
            "org.apache.spark.SparkException",
            MISSING,
            'It has no class "software.amazon.awssdk.core.Sdk".',
        ),
        (
            "org.apache.iceberg.spark.SparkCatalog",
            "java.lang.ClassNotFoundException",
            None,
            'It has no class "org.apache.iceberg.spark.SparkCatalog".',
        ),
        (
            'No FileSystem for scheme "s3"',
            "org.apache.hadoop.fs.UnsupportedFileSystemException",
            None,
            'It has no file system for "s3".',
        ),
        (
            "it failed",
            "org.apache.spark.SparkException",
            "Caused by: org.apache.hadoop.fs.UnsupportedFileSystemException:"
            ' No FileSystem for scheme "s3"\n\tat org.apache.hadoop.fs.FileSystem',
            'It has no file system for "s3".',
        ),
    ],
)
def test_a_jar_that_a_server_of_one_s_own_was_not_given(
    message: str, reason: str, trace: str | None, detail: str
) -> None:
    error = failure(message, reason, trace)
    assert (error.code, error.primary, error.detail) == (
        "55000",
        'the Spark server lacks a jar that it needs while reading lake table "s.t"',
        detail,
    )
    assert "class path of driver and executors" in (error.hint or "")


def test_a_value_that_reads_like_a_missing_jar() -> None:
    quoted = "cannot cast 'java.lang.ClassNotFoundException: secret' to INT"
    error = failure(quoted, "org.apache.spark.SparkException", f"SparkException: {quoted}")
    assert "jar" not in error.primary
    assert "secret" not in error.report()


@pytest.mark.parametrize("state", ["22018", "P0001"])
def test_what_a_value_says_is_not_believed(state: str) -> None:
    message = SAYS_ANYTHING.replace("22018", state)
    error = failure(message, "org.apache.spark.SparkNumberFormatException", message)
    assert isinstance(error, LakeFailure)
    assert error.code == state
    assert "CodeCache" not in error.report()


def test_a_commit_that_came_first() -> None:
    lost = "org.apache.iceberg.exceptions.CommitFailedException: Cannot commit: stale metadata"
    assert is_commit_conflict(failure("it failed", "org.apache.spark.SparkException", lost))
    unknown = "org.apache.iceberg.exceptions.CommitStateUnknownException: 500"
    assert is_commit_conflict(failure("it failed", "org.apache.spark.SparkException", unknown))
    assert not is_commit_conflict(failure("it failed", "org.apache.spark.SparkException", MISSING))


NOT_THERE = """org.apache.spark.SparkException: Job aborted due to stage failure
Caused by: org.apache.iceberg.exceptions.NotFoundException: Failed to open input stream for file
Caused by: java.io.FileNotFoundException: File file:/w/m0.avro does not exist"""


def test_a_file_that_is_not_there() -> None:
    error = failure("it failed", "org.apache.spark.SparkException", NOT_THERE)
    assert isinstance(error, FileMissing)
    assert error.code == "58030"
    assert error.detail == "FileNotFoundException: File file:/w/m0.avro does not exist"
    denied = NOT_THERE.replace("does not exist", "(Permission denied)")
    without_class = "java.lang.ClassNotFoundException: a.B"
    for trace in (denied, without_class):
        other = failure("it failed", "org.apache.spark.SparkException", trace)
        assert not isinstance(other, FileMissing)


def test_a_file_in_the_place_of_the_warehouse_s_folder_is_the_storage_s_error() -> None:
    trace = "org.apache.hadoop.fs.ParentNotDirectoryException: Parent path is not a directory: f"
    error = failure("it failed", "org.apache.spark.SparkException", trace)
    assert (error.code, error.detail) == ("58030", "ParentNotDirectoryException.")


STAGED = "/shared/0c1d/1_0_1/0123456789abcdef0123456789abcdef.parquet"


@pytest.mark.parametrize(
    ("said", "detail"),
    [
        (f"java.io.FileNotFoundException: File file:{STAGED} does not exist", "does not exist"),
        (f"java.io.FileNotFoundException: {STAGED} (Permission denied)", "(Permission denied)"),
        (f"java.nio.file.AccessDeniedException: s3a:/{STAGED}: getFileStatus", "getFileStatus"),
    ],
    ids=["an executor that does not see it", "another user", "a bucket it may not read"],
)
def test_a_staged_file_that_spark_does_not_read(said: str, detail: str) -> None:
    error = failure("Job aborted", "org.apache.spark.SparkException", f"Caused by: {said}")
    assert (error.code, error.primary) == (
        "58030",
        'the lake could not read staged rows while reading lake table "s.t"',
    )
    assert detail in (error.detail or "")
    assert '"spark.staging"' in (error.hint or "")


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("[ARITHMETIC_OVERFLOW] long overflow. SQLSTATE: 22003\n== SQL ==\nid * 2", "22003"),
        ("[CAST_INVALID_INPUT] The value 'x' of the type … SQLSTATE: 22018", "22018"),
        ("[DATATYPE_MISMATCH] Cannot resolve … SQLSTATE: 42K09; line 1 pos 7", "XX000"),
        ("Job aborted", "XX000"),
    ],
)
def test_a_value_that_cannot_be_computed_is_an_error_of_the_data(message: str, code: str) -> None:
    assert failure(message, "org.apache.spark.SparkException").code == code


def test_a_commit_without_a_known_outcome_is_a_failure_that_passes() -> None:
    """And still one behind which the commit is looked for."""
    trace = (
        "org.apache.iceberg.exceptions.CommitStateUnknownException: Service failed: 503: busy\n"
        "Caused by: org.apache.iceberg.exceptions.ServiceFailureException: Service failed: 503"
    )
    error = failure("it failed", trace=trace)
    assert isinstance(error, LakeFailure)
    assert is_commit_conflict(error)
    assert error.code == "58030"
    assert error.primary == 'the lake\'s catalog failed while reading lake table "s.t"'
    assert "tried again" in (error.hint or "")


def test_a_commit_is_repeated_as_often_as_there_are_pauses() -> None:
    asked: list[int] = []

    def outrun() -> None:
        asked.append(1)
        lost = "org.apache.iceberg.exceptions.CommitFailedException: stale"
        raise failure("it failed", "org.apache.spark.SparkException", lost)

    with pytest.raises(LakeFailure):
        repeated(outrun, (0.0, 0.0))
    assert len(asked) == 3
