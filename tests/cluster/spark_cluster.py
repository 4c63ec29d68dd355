"""A Spark standalone cluster on the loopback interface: a master, two workers, a Connect server.

Each is started by Spark's own scripts and is a process of its own, as is each executor. The Connect
server's configuration is the one that docs/scaling.md shows, with this machine's places in it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import pytest

from tests.docs.pages import DOCS, blocks
from tests.lake.lake_stack import S3_IO, LakeStack
from tests.waiting import wait_until
from workers.lake.server.jars import ivy_home, resolve, resolved_jars, spark_home
from workers.lake.server.java import Java, find_java
from workers.lake.server.known_jars import AWS, Jar
from workers.lake.server.lake_server import prepare_catalog
from workers.lake.server.server_conf import embedded_catalog
from workers.parent_death import dying_with_parent

PATIENCE: Final = 300.0
"""Seconds in which each process has to be up, on however busy a machine."""

S3_JARS: Final = (
    Jar(
        "org.apache.hadoop",
        "hadoop-aws",
        "3.4.2",
        "d2d24e6b715b5656b9d238bf13b6682a07e2004dd36aad74a73aeb854319f4d9",
    ),
    AWS,
    Jar(
        "software.amazon.awssdk",
        "s3-transfer-manager",
        "2.44.4",
        "dbcad736b19f6eb8471f9edf027d9fffe994228f25f415894efd01fd80cb6c02",
    ),
)
"""What Spark needs to read ``s3a://``: Hadoop's part, of the version that it
has, the AWS client that this uses, and what that client lacks, of its version."""

_MASTER: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_WORKER: Final = re.compile(r"Successfully registered with master")
_CONNECT: Final = re.compile(r"Spark Connect server started at: \S*?:(\d+)\s")


@dataclass(frozen=True, slots=True)
class SparkCluster:
    """A running cluster; its lake's catalog and tables are in ``lake_dir``."""

    url: str
    lake_dir: Path
    events: Path
    logs: Path
    processes: Mapping[str, int]

    def said(self) -> str:
        """All that its processes wrote, executors included."""
        files = [path for path in self.logs.rglob("*") if path.is_file() and path.suffix != ".jar"]
        return "\n".join(path.read_text(errors="replace") for path in files)


def documented() -> dict[str, str]:
    """The Connect server's configuration in docs/scaling.md."""
    [block] = blocks(DOCS / "scaling.md", "properties")
    pairs = [line.split(None, 1) for line in block.splitlines() if line.strip()]
    return {key: value.strip() for key, value in pairs}


@contextmanager
def spark_cluster(
    folder: Path, conf: Mapping[str, str], env: Mapping[str, str]
) -> Iterator[SparkCluster]:
    """Start it; ``conf`` goes over what is documented, ``env`` is the Connect server's."""
    java = find_java()
    if java.bundled:
        pytest.fail("Spark's scripts want a Java with all its modules: set JAVA_HOME to one")
    lake_dir, logs, events = (folder / name for name in ("lake", "logs", "events"))
    for each in (lake_dir, logs, events):
        each.mkdir()
    prepare_catalog(lake_dir / "catalog.db")
    jars = os.pathsep.join(map(str, [*resolved_jars(java), *s3_jars(java)]))
    given = {
        **documented(),
        "spark.driver.extraClassPath": jars,
        "spark.executor.extraClassPath": jars,
        **{f"spark.sql.catalog.lake.{k}": v for k, v in embedded_catalog(lake_dir).items()},
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.ui.enabled": "false",
        "spark.executor.memory": "768m",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        **conf,
    }
    with ExitStack() as stack:
        processes: dict[str, int] = {}

        def start(up: re.Pattern[str], name: str, *words: str, **more: str) -> str:
            """Start one, wait until it says that it is up: the pattern's group, if it has one."""
            log = logs / f"{name}.log"
            process = _start([str(spark_home() / "bin" / words[0]), *words[1:]], log, java, more)
            stack.callback(_stop, process)
            processes[name] = process.pid

            def said() -> re.Match[str] | None:
                assert process.poll() is None, f"{name} ended:\n{_end(log)}"
                return up.search(log.read_text(errors="replace"))

            match = wait_until(said, PATIENCE, lambda: f"{name} is up; its log:\n{_end(log)}")
            return match.group(match.lastindex or 0)

        deploy = "org.apache.spark.deploy"
        daemon, server = {"SPARK_DAEMON_MEMORY": "256m"}, {"SPARK_DAEMON_MEMORY": "1g"}
        loopback = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        master_class, worker_class = f"{deploy}.master.Master", f"{deploy}.worker.Worker"
        master = start(_MASTER, "master", "spark-class", master_class, *loopback, **daemon)
        for number in (1, 2):
            start(
                _WORKER,
                f"worker{number}",
                *("spark-class", worker_class, *loopback, "--cores", "1", "--memory", "1g"),
                *("--work-dir", str(logs / f"work{number}"), master),
                **daemon,
            )
        given["spark.master"] = master
        properties = folder / "connect.properties"
        properties.write_text("".join(f"{key} {value}\n" for key, value in given.items()))
        port = start(
            _CONNECT,
            "connect",
            *("spark-submit", "--master", master, "--properties-file", str(properties)),
            *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
            "spark-internal",
            **server,
            **env,
        )
        yield SparkCluster(f"sc://127.0.0.1:{port}", lake_dir, events, logs, processes)


def on_rest_and_s3(stack: LakeStack) -> dict[str, str]:
    """The configuration of a cluster whose lake is a REST catalog's, with tables on S3."""
    lake = {**stack.direct_keys(), "io-impl": S3_IO}
    return {
        **{f"spark.sql.catalog.lake.{key}": value for key, value in lake.items()},
        "spark.hadoop.fs.s3a.endpoint": stack.store.endpoint,
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }


def s3_jars(java: Java) -> list[Path]:
    """Fetched once, to where the lake server's jars are."""
    home = ivy_home()
    found = [home / "jars" / jar.file_name for jar in S3_JARS]
    missing = [jar for jar, path in zip(S3_JARS, found, strict=True) if not path.is_file()]
    if missing:
        resolve(java, missing, home, {})
    return found


def _start(
    words: Sequence[str], log: Path, java: Java, more: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """One of Spark's scripts, which becomes the JVM; nothing is inherited but what Spark needs."""
    env = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": os.environ.get("HOME", ""),
        "JAVA_HOME": str(java.path.resolve().parent.parent),
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
        **more,
    }
    with log.open("wb") as out:
        return subprocess.Popen(
            dying_with_parent(words),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=log.parent,
            env=env,
        )


def _end(log: Path) -> str:
    return log.read_text(errors="replace")[-3000:]


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End it and what it started: executors, and their Python."""
    try:
        below = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        below = []
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    _, alive = psutil.wait_procs(below, timeout=30)
    for each in alive:
        each.kill()
