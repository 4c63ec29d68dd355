"""Where a benchmark ran: hardware and versions, never a name of the machine or of a folder."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import psutil

from config.guc import Settings
from config.quantities import format_memory
from workers.lake.server.java import find_java
from workers.lake.server.known_jars import JARS

_CPU_INFO: Final = Path("/proc/cpuinfo")
_ICEBERG: Final = "org.apache.iceberg"
_LIBRARIES: Final = {"spark": "pyspark", "pyarrow": "pyarrow", "numba": "numba"}


def environment(postgresql: str, native: str, ours: Mapping[str, str]) -> dict[str, Any]:
    """Hardware and versions, and what differs from the defaults of either side.

    ``memory_gb`` is the machine's, ``lake_server_memory`` the heap of our JVM.
    """
    return {
        "cpu": cpu_model(_CPU_INFO.read_text() if _CPU_INFO.exists() else ""),
        "cpus": _cpus(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "postgresql": postgresql,
        **{name: importlib.metadata.version(package) for name, package in _LIBRARIES.items()},
        "iceberg": next(jar.version for jar in JARS if jar.group == _ICEBERG),
        "java": _java(),
        "python": platform.python_version(),
        "lake_server_memory": format_memory(Settings().lake_server_memory),
        "native": native,
        "ours": ", ".join(f"{name} = {value}" for name, value in ours.items()),
    }


def cpu_model(cpu_info: str) -> str:
    """The first processor's name in the text of ``/proc/cpuinfo``, else the architecture."""
    found = re.search(r"^model name\s*:\s*(.+)$", cpu_info, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()


def java_version(said: str) -> str:
    """The version in what ``java -version`` prints."""
    found = re.search(r'version "([^"]+)"', said)
    assert found is not None, said
    return found[1]


def _cpus() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _java() -> str:
    command = [str(find_java().path), "-version"]
    return java_version(subprocess.run(command, check=True, capture_output=True, text=True).stderr)
