"""Spark's Python daemon, with the modules of a copy imported before the daemon forks workers.

The embedded server runs the module as ``spark.python.daemon.module``. Spark's own daemon leaves the
import of pandas, Arrow, psycopg and compiled kernels to every forked worker: more than two seconds
of CPU in a worker, as much as the reading of some million rows.
"""

from __future__ import annotations

import gc
import os
import re
import sys
from importlib import import_module

# Spark puts archives in front of the path: pyspark and py4j, although both are installed and
# compiled, and the jar of Spark's core, which holds no Python. Modules of an archive are compiled
# at every start, and every task reads the archives' directories again (0.1 s).
_ARCHIVE = re.compile(r".*/(pyspark\.zip|py4j-[^/]*\.zip|spark-core_[^/]*\.jar)")
sys.path[:] = [entry for entry in sys.path if not _ARCHIVE.fullmatch(entry)]
sys.path_importer_cache.clear()

# A copy multiplies no matrices; a thread pool for matrices would only hinder a fork.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

for _module in (
    "pandas",
    "psycopg.pq",
    "pyarrow.csv",
    "pyspark.sql.pandas.serializers",
    "workers.lake.files.data_files",
):
    import_module(_module)
import_module("workers.columnar.warm").warm_copy()

# A worker collects garbage after every task; frozen, the imported modules are not looked at.
gc.collect()
gc.freeze()

if __name__ == "__main__":
    import_module("pyspark.daemon").manager()
