"""Spark's Python daemon, with what a copy needs imported before it forks its workers.

The embedded server runs this module as ``spark.python.daemon.module``. Spark's own daemon leaves
pandas, Arrow, psycopg and compiled kernels to each worker it forks: more than two seconds of CPU in
every one of them, as much as reading some million rows takes.
"""

from __future__ import annotations

import gc
import os
import re
import sys
from importlib import import_module

# Spark puts its own archives in front: pyspark and py4j, which are installed, and compiled, here,
# and the jar that its core is in, where no Python is. From an archive they are compiled at each
# start, and each task reads the directories of all of them again (0.1 s).
_ARCHIVE = re.compile(r".*/(pyspark\.zip|py4j-[^/]*\.zip|spark-core_[^/]*\.jar)")
sys.path[:] = [entry for entry in sys.path if not _ARCHIVE.fullmatch(entry)]
sys.path_importer_cache.clear()

# Nobody multiplies matrices here; a pool of threads for it would only be in a fork's way.
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

# A worker collects garbage after every task; what was imported is none, and need not be looked at.
gc.collect()
gc.freeze()

if __name__ == "__main__":
    import_module("pyspark.daemon").manager()
