"""Staged rows as a Spark DataFrame."""

from __future__ import annotations

from typing import Any, Final

from workers.lake.connect.session import LakeSession
from workers.lake.sql.spark_typemap import schema_ddl
from workers.lake.staged_rows import Staged
from workers.lake.storage.choose_store import staging_store
from workers.lake.storage.staging import staged_schema

_STRICT: Final = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
"""A remote Spark server may be set to skip unreadable files: their rows would be lost."""


def frame(session: LakeSession, staged: Staged) -> Any:
    """The rows as a DataFrame: sent with the plan, or read from staged files."""
    if staged.table is not None:
        return session.local(staged.table)
    reader = session.spark.read.schema(schema_ddl(staged_schema(staged))).options(**_STRICT)
    return reader.parquet(*(staging_store(path).spark_path(path) for path in staged.paths))
