"""What a lake server that nobody kills may gather over its life, and how much of it is too much."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import psutil

from tests.crash.family import Family
from tests.fix_publisher import Database
from tests.soak.meter import Meter, Sample
from workers.lake.api.connection import brief
from workers.lake.api.gateway import gateway_address
from workers.lake.api.own_gateway import count_objects
from workers.lake.api.session_catalogs import service

FLAT: Final = {
    "launcher_mb": 1.2,
    "descriptors": 1.15,
    "threads": 1.2,
    "heap_mb": 1.2,
    "gateway_objects": 1.5,
    "spark_sessions": 1.5,
    "scratch_entries": 1.5,
    "staging_files": 2.0,
    "branches": 1.5,
    "snapshots": 1.5,
    "metadata_mb": 1.5,
    "log_mb": 1.5,
    "lag_mb": 2.0,
}
"""How much higher than early on a measure may be at the end."""

NEAR_ZERO: Final = {
    "heap_mb": 200.0,
    "gateway_objects": 60.0,
    "spark_sessions": 20.0,
    "staging_files": 20.0,
    "branches": 4.0,
    "metadata_mb": 16.0,
    "log_mb": 8.0,
    "lag_mb": 8.0,
}
"""What is below may double and double again. A log of this size is far from its rotation, and a
server that is warm has a heap of 150 MB. In five minutes the metadata of the status tables is not
at its end yet: 13 MB. Expiries that never ended left 39 MB, files that stayed 27."""


class QuietMeter:
    """The measures of the soak with kills, and those of the lake server from inside."""

    def __init__(
        self, family: Family, database: Database, name: str, tables: Sequence[str]
    ) -> None:
        self._meter = Meter(family, database, name, tables)
        self._family = family

    def sample(self) -> Sample:
        """Now; the heap is what a full collection leaves."""
        status = self._family.status()
        assert status.lake_pid is not None, "the lake server is gone"
        assert status.lake_url is not None, "the lake server is gone"
        address = gateway_address(status.lake_url)
        assert address is not None
        process = psutil.Process(status.lake_pid)
        data_dir = self._family.pgsub.data_dir
        with brief(*address) as java:
            sessions = service(java).sessionManager().listActiveSessions().size()
            java.jvm.java.lang.System.gc()
            runtime = java.jvm.java.lang.Runtime.getRuntime()
            heap = runtime.totalMemory() - runtime.freeMemory()
        return {
            **self._meter.sample(),
            "descriptors": float(process.num_fds()),
            "threads": float(process.num_threads()),
            "heap_mb": heap / 1e6,
            "gateway_objects": float(count_objects(*address)),
            "spark_sessions": float(sessions),
            "scratch_entries": float(entries(data_dir / "lake" / "tmp")),
            "log_mb": sum(path.stat().st_size for path in (data_dir / "log").iterdir()) / 1e6,
        }


def entries(folder: Path) -> int:
    """Files and folders below a folder, at any depth."""
    return sum(1 for _ in folder.rglob("*"))
