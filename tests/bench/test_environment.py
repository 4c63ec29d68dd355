from __future__ import annotations

import platform
import socket

import pytest

from tests.bench import environment as module
from tests.bench.environment import cpu_model, environment, java_version

CPU_INFO = """\
processor\t: 0
model name\t: A Processor @ 2.00GHz
processor\t: 1
model name\t: A Processor @ 2.00GHz
"""


def test_what_is_kept_of_an_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_java", lambda: "21.0.1")
    for function in ("node", "uname"):
        monkeypatch.setattr(platform, function, lambda: pytest.fail("names the machine"))
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(socket, "gethostname", lambda: pytest.fail("names the machine"))
    found = environment("18.0", "fsync = on", {"wal_receiver_timeout": "0"})
    assert found.keys() == {
        "cpu", "cpus", "memory_gb", "system", "postgresql", "spark", "pyarrow", "numba", "iceberg",
        "java", "python", "lake_server_memory", "native", "ours",
    }  # fmt: skip
    assert found["system"] == "Linux x86_64"
    assert found["cpus"] >= 1
    assert found["memory_gb"] >= 1
    assert found["lake_server_memory"] == "2GB"
    assert (found["native"], found["ours"]) == ("fsync = on", "wal_receiver_timeout = 0")


def test_the_processor_by_its_name() -> None:
    assert cpu_model(CPU_INFO) == "A Processor @ 2.00GHz"
    assert cpu_model("processor\t: 0\n") != ""


def test_the_version_that_java_prints() -> None:
    said = 'openjdk version "21.0.8" 2025-07-15 LTS\nOpenJDK Runtime Environment (build 1)\n'
    assert java_version(said) == "21.0.8"
