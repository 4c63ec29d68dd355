"""What the JVM's optimising compiler leaves alone: code that runs once per statement or task.

Planning a statement, shipping a task and reading metadata take some hundred thousand lines of
Java, each run a few times per batch. After some dozen batches the optimising compiler (C2) begins
to work on them, one by one, for minutes, on the cores that the batches need: 2 of 4 CPU seconds of
a MERGE. Compiled by C1, which they are at once, they are fast enough.

Measured on 2 cores, with and without: the second MERGE of 200,000 of 3 M rows 2.6 and 3.6 s, the
eighth 1.8 and 1.9 s; the first copy of 2 M rows in a new JVM 10.1 and 11.2 s, the second 4.4 and
5.4 s. Stopping all code at C1, or raising C2's thresholds for all of it, is slower: what runs once
per row needs C2 early.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

ONCE_PER_STATEMENT: Final = (
    "org/antlr/v4/*.*",
    "org/apache/spark/sql/catalyst/analysis/*.*",
    "org/apache/spark/sql/catalyst/expressions/codegen/Code*.*",
    "org/apache/spark/sql/catalyst/optimizer/*.*",
    "org/apache/spark/sql/catalyst/plans/*.*",
    "org/apache/spark/sql/catalyst/rules/*.*",
    "org/apache/spark/sql/catalyst/trees/*.*",
    "org/apache/hadoop/conf/*.*",
    "org/apache/iceberg/shaded/com/fasterxml/*.*",
    "org/apache/iceberg/shaded/org/apache/avro/*.*",
    "com/fasterxml/jackson/*.*",
    "java/util/Formatter*.*",
    "java/util/regex/*.*",
)
"""Parsing, planning, generating code, and the JSON and Avro of Iceberg's metadata."""

ONCE_PER_TASK: Final = (
    "org/apache/spark/scheduler/*.*",
    "org/apache/xbean/asm9/*.*",
    "org/sparkproject/*.*",
    "io/netty/*.*",
    "java/io/ObjectInputStream*.*",
    "java/io/ObjectOutputStream*.*",
    "java/io/ObjectStreamClass*.*",
    "java/lang/ClassValue*.*",
    "java/lang/invoke/*.*",
    "java/util/jar/*.*",
    "java/util/zip/ZipFile*.*",
    "jdk/internal/loader/*.*",
)
"""Cleaning closures, serialising and scheduling tasks, answering clients, loading classes."""


def compiler_directives() -> str:
    """The text of a file for ``-XX:CompilerDirectivesFile``."""
    return json.dumps(
        [{"match": [*ONCE_PER_STATEMENT, *ONCE_PER_TASK], "c2": {"Exclude": True}}], indent=1
    )


def options(file: Path) -> list[str]:
    """What makes a JVM of release 17 or later obey ``file`` and keep quiet about it."""
    return [
        "-XX:+UnlockDiagnosticVMOptions",
        f"-XX:CompilerDirectivesFile={file}",
        "-XX:CompileCommand=quiet",
    ]
