"""Spark's Python daemon, with what a copy needs imported before it forks its workers.

The embedded server runs this module as ``spark.python.daemon.module``. Spark's own daemon leaves
pandas, Arrow and psycopg to each worker it forks: two seconds of CPU in every one of them, as much
as reading a million rows takes.
"""

from __future__ import annotations

import os
from importlib import import_module

from pyspark.daemon import manager

# Nobody multiplies matrices here; a pool of threads for it would only be in a fork's way.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

for _module in ("pandas", "psycopg.pq", "pyarrow.csv", "pyspark.sql.pandas.serializers"):
    import_module(_module)

if __name__ == "__main__":
    manager()
