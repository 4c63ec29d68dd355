"""The compiler's directives are obeyed by the JVM and name code that is there."""

from __future__ import annotations

import subprocess
import zipfile
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

from workers.lake.server.compiler_directives import (
    ONCE_PER_STATEMENT,
    ONCE_PER_TASK,
    compiler_directives,
    options,
)
from workers.lake.server.jars import ivy_home, spark_home
from workers.lake.server.java import find_java

pytestmark = pytest.mark.spark

PATTERNS = (*ONCE_PER_STATEMENT, *ONCE_PER_TASK)
OF_THE_JVM = ("java/", "javax/", "jdk/", "sun/")


@cache
def classes() -> frozenset[str]:
    """Every class file on the lake server's class path."""
    jars = [*(spark_home() / "jars").glob("*.jar"), *(ivy_home() / "jars").glob("*.jar")]
    names: set[str] = set()
    for jar in jars:
        with zipfile.ZipFile(jar) as file:
            names.update(file.namelist())
    return frozenset(names)


@pytest.mark.parametrize(
    "pattern",
    [each for each in PATTERNS if not each.startswith(OF_THE_JVM)],
)
def test_a_pattern_names_classes_of_this_release(pattern: str) -> None:
    assert any(name.startswith(pattern.partition("*")[0]) for name in classes())


def test_the_jvm_takes_them(tmp_path: Path) -> None:
    file = tmp_path / "directives.json"
    file.write_text(compiler_directives())
    run = subprocess.run(
        [str(find_java().path), *options(file), "-version"], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "1 compiler directives added\n"


@pytest.mark.parametrize(
    "name",
    [
        "com/github/luben/zstd/ZstdOutputStreamNoFinalizer",
        "org/apache/arrow/memory/ArrowBuf",
        "org/apache/iceberg/deletes/Deletes",
        "org/apache/iceberg/deletes/SortingPositionOnlyDeleteWriter",
        "org/apache/iceberg/io/RollingFileWriter",
        "org/apache/iceberg/parquet/ParquetValueWriters$StructWriter",
        "org/apache/iceberg/shaded/org/apache/parquet/column/impl/ColumnWriterBase",
        "org/apache/iceberg/shaded/org/apache/parquet/schema/PrimitiveComparator$IntComparator",
        "org/apache/iceberg/spark/data/SparkParquetWriters$UTF8StringWriter",
        "org/apache/iceberg/spark/source/SparkPositionDeltaWrite$DeleteAndDataDeltaWriter",
        "org/apache/iceberg/types/Comparators$StructLikeComparator",
        "org/apache/iceberg/types/JavaHashes",
        "org/apache/spark/sql/catalyst/expressions/UnsafeRow",
        "org/apache/spark/sql/catalyst/expressions/codegen/UnsafeRowWriter",
        "org/apache/spark/sql/connector/write/DataWriter",
        "org/apache/spark/sql/execution/BufferedRowIterator",
        "org/apache/spark/sql/execution/SparkPlan",
        "org/apache/spark/sql/execution/datasources/parquet/VectorizedColumnReader",
        "org/apache/spark/sql/execution/datasources/v2/PartitionIterator",
        "org/apache/spark/sql/execution/joins/LongToUnsafeRowMap",
        "org/apache/spark/sql/execution/vectorized/OnHeapColumnVector",
        "org/apache/spark/unsafe/types/UTF8String",
    ],
)
def test_what_runs_once_per_row_is_optimised(name: str) -> None:
    assert f"{name}.class" in classes()
    assert not left_out(f"{name}.run")


def test_generated_code_is_optimised() -> None:
    generated = "org/apache/spark/sql/catalyst/expressions/GeneratedClass$GeneratedIterator"
    assert not left_out(f"{generated}.processNext")


def left_out(method: str) -> list[str]:
    """The patterns that keep the optimising compiler from a method."""
    return [each for each in PATTERNS if fnmatchcase(method, each)]
