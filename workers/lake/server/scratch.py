"""The lake server's temporary files in ``lake/tmp``, and its working directory.

A start removes the temporary files of former servers by their names and nothing else. An earlier
version ran the server in ``lake/tmp``, so with a relative warehouse tables may lie there.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from pathlib import Path
from typing import Final

WORKING_DIRECTORY: Final = "cwd"
"""The folder below ``lake`` in which the server runs. A relative path of a user's Spark settings
leads there, and no start removes anything from the folder."""

SCRATCH_VARIABLE: Final = "PGSUB_SCRATCH"
"""The variable that names the folder of temporary files to the processes of the server."""

_TEMPORARY: Final = re.compile(
    r"(artifacts|blockmgr|spark|hadoop|pyspark|localdir)-.+|python-[0-9]+|gateway|spark-warehouse"
    r"|spark_connect_model_cache|hsperfdata_.+|.+\.(so|jar|tmp|lck|xml)"
)


def clear_scratch(scratch: Path) -> None:
    """Remove the temporary files of former servers from the folder, if there is one."""
    try:
        entries = list(scratch.iterdir())
    except OSError:
        return
    for entry in entries:
        if not _TEMPORARY.fullmatch(entry.name):
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                entry.unlink()
