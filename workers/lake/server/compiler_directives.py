"""Code that the JVM's optimising compiler skips, because it runs once per statement or task.

Planning a statement, shipping a task and reading metadata take some hundred thousand lines of
Java, and a batch runs every line a few times. After some dozen batches the optimising compiler (C2)
begins to compile the lines, for minutes, on the cores that the batches need: 2 of 4 CPU seconds of
a MERGE. C1 compiles the lines at once, and the result is fast enough.

Measured on 2 cores, with the first patterns of the list and without: the second MERGE of 200,000 of
3 M rows 2.6 and 3.6 s, the eighth 1.8 and 1.9 s; the first copy of 2 M rows in a new JVM 10.1 and
11.2 s. With most patterns, and with sessions that share generated code (``shared_session``), the
compiler works 77 s instead of 131 s in a server's first four minutes of copies and batches. The
last patterns are the code that C2 still compiled in a thousand MERGEs of 200 rows: Hadoop's and
Iceberg's handling of files, the blocks of a broadcast, Arrow's buffers.

Stopping all code at C1, or raising C2's thresholds for all code, is slower: code that runs once per
row needs C2 early. The callees of such code need C2 too, because the JVM does not inline skipped
code. The collections of Java and Scala are therefore not in the list.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

ONCE_PER_STATEMENT: Final = (
    "org/antlr/v4/*.*",
    "org/codehaus/janino/*.*",
    "org/apache/spark/sql/catalyst/QueryPlanningTracker*.*",
    "org/apache/spark/sql/catalyst/SQLConfHelper*.*",
    "org/apache/spark/sql/catalyst/analysis/*.*",
    "org/apache/spark/sql/catalyst/catalog/*.*",
    "org/apache/spark/sql/catalyst/expressions/Attribute*.*",
    "org/apache/spark/sql/catalyst/expressions/EquivalentExpressions*.*",
    "org/apache/spark/sql/catalyst/expressions/Expression*.*",
    "org/apache/spark/sql/catalyst/expressions/codegen/Block*.*",
    "org/apache/spark/sql/catalyst/expressions/codegen/Code*.*",
    "org/apache/spark/sql/catalyst/expressions/codegen/Expr*.*",
    "org/apache/spark/sql/catalyst/expressions/codegen/Generate*.*",
    "org/apache/spark/sql/catalyst/expressions/codegen/package*.*",
    "org/apache/spark/sql/catalyst/expressions/package*.*",
    "org/apache/spark/sql/catalyst/optimizer/*.*",
    "org/apache/spark/sql/catalyst/parser/*.*",
    "org/apache/spark/sql/catalyst/planning/*.*",
    "org/apache/spark/sql/catalyst/plans/*.*",
    "org/apache/spark/sql/catalyst/rules/*.*",
    "org/apache/spark/sql/catalyst/trees/*.*",
    "org/apache/spark/sql/connect/*.*",
    "org/apache/spark/sql/connector/catalog/*.*",
    "org/apache/spark/sql/execution/ApplyColumnarRules*.*",
    "org/apache/spark/sql/execution/CodegenSupport*.*",
    "org/apache/spark/sql/execution/ExplainUtils*.*",
    "org/apache/spark/sql/execution/QueryExecution*.*",
    "org/apache/spark/sql/execution/SparkPlanInfo*.*",
    "org/apache/spark/sql/execution/WholeStageCodegenExec*.*",
    "org/apache/spark/sql/execution/adaptive/*.*",
    "org/apache/spark/sql/execution/datasources/v2/BatchScanExec*.*",
    "org/apache/spark/sql/execution/datasources/v2/DataSourceV2Strategy*.*",
    "org/apache/spark/sql/execution/datasources/v2/DataSourceV2Utils*.*",
    "org/apache/spark/sql/execution/datasources/v2/V2ScanRelationPushDown*.*",
    "org/apache/spark/sql/execution/ui/*.*",
    "org/apache/spark/sql/internal/*.*",
    "org/apache/spark/sql/types/Metadata*.*",
    "org/apache/spark/sql/util/SchemaUtils*.*",
    "org/apache/hadoop/conf/*.*",
    "org/apache/hadoop/fs/ChecksumFileSystem.*",
    "org/apache/hadoop/fs/FileSystem*.*",
    "org/apache/hadoop/fs/LocalFileSystem*.*",
    "org/apache/hadoop/fs/Path*.*",
    "org/apache/hadoop/fs/RawLocalFileSystem*.*",
    "org/apache/hadoop/fs/permission/*.*",
    "org/apache/hadoop/fs/statistics/*.*",
    "org/apache/iceberg/BaseTable*.*",
    "org/apache/iceberg/Partitioning*.*",
    "org/apache/iceberg/SchemaParser*.*",
    "org/apache/iceberg/SnapshotParser*.*",
    "org/apache/iceberg/TableMetadata*.*",
    "org/apache/iceberg/TableUtil*.*",
    "org/apache/iceberg/avro/*.*",
    "org/apache/iceberg/hadoop/*.*",
    "org/apache/iceberg/jdbc/*.*",
    "org/apache/iceberg/mapping/*.*",
    "org/apache/iceberg/metrics/*.*",
    "org/apache/iceberg/parquet/Parquet$*.*",
    "org/apache/iceberg/shaded/com/fasterxml/*.*",
    "org/apache/iceberg/shaded/org/apache/avro/*.*",
    "org/apache/iceberg/spark/Spark*.*",
    "org/apache/iceberg/spark/source/SparkMetadataColumn*.*",
    "org/apache/iceberg/spark/source/SparkPositionDeltaOperation*.*",
    "org/apache/iceberg/spark/source/SparkTable*.*",
    "org/apache/iceberg/spark/TypeToSparkType*.*",
    "org/apache/iceberg/types/IndexByName*.*",
    "org/apache/iceberg/types/Type*.*",
    "org/json4s/*.*",
    "org/sqlite/*.*",
    "com/fasterxml/jackson/*.*",
    "com/globalmentor/apache/hadoop/fs/*.*",
    "java/text/*.*",
    "java/util/Formatter*.*",
    "java/util/regex/*.*",
    "sun/util/locale/*.*",
)
"""Parsing, planning, generating and compiling code, and the metadata of Iceberg."""

ONCE_PER_TASK: Final = (
    "org/apache/arrow/memory/Allocation*.*",
    "org/apache/arrow/memory/BaseAllocator*.*",
    "org/apache/arrow/memory/BufferLedger*.*",
    "org/apache/arrow/memory/netty/*.*",
    "org/apache/iceberg/shaded/org/apache/parquet/format/*.*",
    "org/apache/iceberg/shaded/org/apache/parquet/hadoop/metadata/*.*",
    "org/apache/iceberg/shaded/org/apache/parquet/schema/LogicalType*.*",
    "org/apache/iceberg/shaded/org/apache/parquet/schema/MessageType*.*",
    "org/apache/iceberg/shaded/org/apache/parquet/schema/PrimitiveType*.*",
    "org/apache/iceberg/shaded/org/apache/parquet/schema/Type*.*",
    "org/apache/parquet/format/*.*",
    "org/apache/parquet/schema/*.*",
    "org/apache/spark/broadcast/*.*",
    "org/apache/spark/connect/proto/*.*",
    "org/apache/spark/internal/*.*",
    "org/apache/spark/network/*.*",
    "org/apache/spark/rdd/RDDOperationScope*.*",
    "org/apache/spark/rpc/*.*",
    "org/apache/spark/scheduler/*.*",
    "org/apache/spark/status/*.*",
    "org/apache/spark/sql/execution/datasources/PreReadCheck*.*",
    "org/apache/spark/storage/Block*.*",
    "org/apache/spark/storage/memory/*.*",
    "org/apache/spark/util/ListenerBus*.*",
    "org/apache/spark/util/SizeEstimator*.*",
    "org/apache/spark/util/kvstore/*.*",
    "org/apache/xbean/asm9/*.*",
    "org/sparkproject/*.*",
    "shaded/parquet/org/apache/thrift/*.*",
    "io/netty/*.*",
    "java/io/ClassCache*.*",
    "java/io/ObjectInputStream*.*",
    "java/io/ObjectOutputStream*.*",
    "java/io/ObjectStreamClass*.*",
    "java/lang/ClassLoader*.*",
    "java/lang/ClassValue*.*",
    "java/lang/invoke/*.*",
    "java/net/*.*",
    "java/util/ServiceLoader*.*",
    "java/util/jar/*.*",
    "java/util/zip/ZipFile*.*",
    "javax/management/*.*",
    "jdk/internal/loader/*.*",
    "jdk/internal/org/objectweb/*.*",
    "jdk/internal/reflect/*.*",
    "scala/collection/generic/DefaultSerializationProxy*.*",
    "scala/runtime/LambdaDeserialize*.*",
)
"""Cleaning closures, serialising and scheduling tasks, answering clients, reading the ends of
files, loading classes."""


def compiler_directives() -> str:
    """The text of a file for ``-XX:CompilerDirectivesFile``."""
    return json.dumps(
        [{"match": [*ONCE_PER_STATEMENT, *ONCE_PER_TASK], "c2": {"Exclude": True}}], indent=1
    )


def options(file: Path) -> list[str]:
    """Options by which a JVM of release 17 or later obeys ``file`` without a message."""
    return [
        "-XX:+UnlockDiagnosticVMOptions",
        f"-XX:CompilerDirectivesFile={file}",
        "-XX:CompileCommand=quiet",
    ]
