"""What Spark's Python daemon finds where Spark starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark

HOME = Path(pyspark.__file__).parent

_IMPORTERS = """
import sys, zipimport, workers.lake.server.python_daemon
print(*(e for e, f in sys.path_importer_cache.items() if isinstance(f, zipimport.zipimporter)))
"""


def test_no_archive_is_left_that_each_task_would_read_again() -> None:
    [path] = HOME.glob("jars/spark-core_*.jar")  # what Spark puts there for a daemon of its own
    environ = os.environ | {"PYTHONPATH": str(path)}
    found = subprocess.run(
        [sys.executable, "-c", _IMPORTERS], env=environ, capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == []
