"""The Spark configuration of the embedded lake server.

``catalog`` and ``conf`` are the user's keys (``lake.catalog`` and ``spark.conf`` of the YAML) and
take precedence, except over ``FIXED``: a wrong value of a ``FIXED`` key would lose rows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from catalog.errcodes import IoError
from config.lake import catalog_kind, plain_keys
from config.monitor_limits import (
    MANIFEST_CACHE_BYTES,
    METASTORE_LOCK_SECONDS,
    STORE_DICTIONARY_BYTES,
    STORE_ROW_GROUP_BYTES,
    STORE_TASK_BYTES,
    STORE_TASK_THREADS,
)
from workers.lake.connect.session_conf import CATALOG, CATALOG_PREFIX, FIXED
from workers.lake.server.file_store import missing_io, store_of

_IN_STORE: Final = {
    # Iceberg reads a manifest twice, and then from memory: the second time costs no request.
    "io.manifest.cache-enabled": "true",
    "io.manifest.cache.max-total-bytes": str(MANIFEST_CACHE_BYTES),
    # A task keeps a row group in memory, and more tasks run than there are processors.
    "table-default.write.parquet.row-group-size-bytes": str(STORE_ROW_GROUP_BYTES),
    "table-default.write.parquet.dict-size-bytes": str(STORE_DICTIONARY_BYTES),
}
"""Of a catalog whose tables may be in a store."""
_OF_KIND: Final[Mapping[str, Mapping[str, str]]] = {
    # Iceberg would tell a REST catalog of every commit and every scan: a request for each.
    "rest": {"rest-metrics-reporting-enabled": "false"},
    "hive": {
        "hadoop.iceberg.hive.lock-creation-timeout-ms": str(1000 * METASTORE_LOCK_SECONDS),
    },
}
_PYTHON: Final = {
    "spark.python.daemon.module": "workers.process.python_daemon",
    # A worker that waits for a next task would keep 75 MB for a minute, and the daemon with it.
    # A new worker is forked in a few hundredths of a second.
    "spark.python.worker.reuse": "false",
}
_IN_ONE_PROCESS: Final = re.compile(r"local(\[[0-9*, ]+\])?")


def catalog_conf(catalog: Mapping[str, str]) -> dict[str, str]:
    """``{"type": "rest", …}`` as ``spark.sql.catalog.lake.*`` keys.

    Full ``spark.sql.catalog.*`` names pass through. A catalog gets the class that speaks to the
    store of its tables, unless the user or the catalog names the class.
    """
    conf = {CATALOG_PREFIX: "org.apache.iceberg.spark.SparkCatalog"}
    in_store = _IN_STORE if _may_have_store(catalog) else {}
    of_kind = dict(_OF_KIND.get(catalog_kind(plain_keys(catalog)), {}))
    for key, value in (of_kind | in_store | missing_io(catalog) | dict(catalog)).items():
        conf[key if key.startswith("spark.") else f"{CATALOG_PREFIX}.{key}"] = str(value)
    return conf


def _may_have_store(catalog: Mapping[str, str]) -> bool:
    """Are the tables in a store? A REST catalog tells later where they are."""
    return catalog_kind(plain_keys(catalog)) == "rest" or store_of(catalog) is not None


def tasks_at_once(cores: int, memory: int, catalog: Mapping[str, str]) -> int:
    """Tasks that the server runs at a time, with a heap of ``memory`` bytes.

    One for each processor, and more for tables in a store, where tasks wait for requests.
    """
    if not _may_have_store(catalog):
        return cores
    return max(cores, min(STORE_TASK_THREADS, memory // STORE_TASK_BYTES))


def embedded_catalog(lake_dir: Path) -> dict[str, str]:
    """The default catalog: JDBC on a SQLite file that pyiceberg's ``SqlCatalog`` can read."""
    return {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{lake_dir / 'catalog.db'}",
        "warehouse": str(lake_dir / "warehouse"),
        "jdbc.schema-version": "V1",
        "jdbc.journal_mode": "WAL",
        "jdbc.synchronous": "FULL",
        "jdbc.busy_timeout": "30000",
    }


def check_lake_folder(folder: Path) -> None:
    """58030 for a folder in which no lake server could start. Creates no folder."""
    if folder.exists() and not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        raise IoError(
            f'could not use the lake folder "{folder}"',
            detail="It cannot be written to." if folder.is_dir() else "It is not a directory.",
            hint="Move away what is there, or let this user write to it.",
        )


def writes_here(conf: Mapping[str, str]) -> bool:
    """Do tasks of a server with the user's keys run in the server's process, with pgsub's Python?

    Such tasks see the same files as workers, and can import pgsub.
    """
    alone = _IN_ONE_PROCESS.fullmatch(conf.get("spark.master", "local")) is not None
    return alone and "spark.pyspark.python" not in conf


def server_conf(
    lake_dir: Path,
    cores: int,
    catalog: Mapping[str, str],
    conf: Mapping[str, str],
    memory: int,
) -> dict[str, str]:
    """Everything the embedded server starts with, in ascending order of precedence.

    ``memory`` is the heap in bytes.
    """
    scratch = lake_dir / "tmp"
    master = conf.get("spark.master", "local")
    local = master.startswith("local")
    alone = _IN_ONE_PROCESS.fullmatch(master) is not None
    ours = local and "spark.pyspark.python" not in conf  # a different Python may lack pgsub
    return (
        {
            "spark.master": f"local[{tasks_at_once(cores, memory, catalog)}]",
            "spark.app.name": "pgsub lake server",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            # Spark writes every plan as text for a page that no user sees: short text.
            "spark.sql.ui.explainMode": "simple",
            "spark.driver.host": "localhost",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(scratch),
            "spark.sql.warehouse.dir": str(scratch / "spark-warehouse"),
            "spark.sql.catalogImplementation": "in-memory",
            "spark.sql.extensions": (
                "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
            ),
            "spark.sql.defaultCatalog": CATALOG,
            # Several tables are committed at once; no table may wait for a long commit.
            "spark.scheduler.mode": "FAIR",
            "spark.sql.shuffle.partitions": str(cores),
            # Sets the permissions of a file without starting a process.
            "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
            "spark.sql.adaptive.coalescePartitions.minPartitionSize": "4m",
            "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
            "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
            # For generated code with all columns of a row in a single method the JVM's compiler
            # needs 2 to 3 s at 60 columns: 300,000 rows took 34 s of CPU, 25 s in small methods.
            "spark.sql.codegen.maxFields": "40",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
            # A worker may be idle for days and still needs the session. Dead workers' sessions
            # are released by name.
            "spark.connect.session.manager.defaultSessionTimeout": "-1",
            # No stack traces travel to the client: an error message is a single line.
            "spark.sql.pyspark.jvmStacktrace.enabled": "false",
            "spark.log.structuredLogging.enabled": "false",
            "spark.connect.progress.reportInterval": "500ms",
            "spark.ui.retainedJobs": "50",
            "spark.ui.retainedStages": "50",
            "spark.ui.retainedTasks": "500",
            "spark.sql.ui.retainedExecutions": "20",
            "spark.connect.ui.session.limit": "20",
            "spark.connect.ui.statement.limit": "50",
            "spark.cleaner.periodicGC.interval": "10min",
        }
        | (_PYTHON if ours else {})
        # Spark generates the secret, which no process outside the server needs.
        | ({"spark.authenticate": "true"} if alone else {})
        | catalog_conf(catalog or embedded_catalog(lake_dir))
        | {key: str(value) for key, value in conf.items()}
        | FIXED
    )
