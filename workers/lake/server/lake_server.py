"""The embedded lake server: one JVM that runs Spark Connect on the loopback interface.

The JVM is started directly (``java -cp … SparkSubmit``): twice as fast as Spark's scripts, and
without a shell. The command line holds no secret: the user's configuration is in a 0600 properties
file, and the token that clients must present is in the environment. A crash report may quote rows:
the JVM writes the report to a 0600 file and leaves no core.

The JVM begins like the JVM of a PySpark program, with Spark's gateway for Python, and is then told
to run Spark Connect (``gateway_port``). If tasks run in the same process, workers use the gateway
too: port and secret of the gateway are part of the URL, which is a secret anyway.

The process belongs to the launcher: the process inherits the descriptor of the launcher's lock, and
the kernel kills the process when the launcher dies. ``start`` must therefore be called from the
launcher's main thread (the death signal is tied to the thread that forked).
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

from catalog.errcodes import ConnectionFailure
from config.lake import embedded_catalog_file
from config.limits import (
    LAKE_CATALOG_BUSY_SECONDS,
    LAKE_SERVER_ARCHIVE_SECONDS,
    LAKE_SERVER_POLL_SECONDS,
    LAKE_SERVER_READY_SECONDS,
    LAKE_SERVER_STOP_SECONDS,
)
from config.monitor_limits import (
    LOG_FILE_BYTES,
    LOG_KEPT_FILES,
    MANIFEST_THREADS,
)
from workers.lake.connect.session_conf import processors
from workers.lake.server import compiler_directives
from workers.lake.server.class_archive import ClassArchive
from workers.lake.server.gateway_port import GatewayServer
from workers.lake.server.hadoop_defaults import without_defaults
from workers.lake.server.idle_memory import memory_options
from workers.lake.server.jars import cache_home, ivy_home, resolved_jars, spark_home
from workers.lake.server.java import MODULE_OPTIONS, find_java, write_trust_store
from workers.lake.server.known_jars import JARS
from workers.lake.server.scratch import SCRATCH_VARIABLE, WORKING_DIRECTORY, clear_scratch
from workers.lake.server.server_conf import check_lake_folder, server_conf, writes_here
from workers.parent_death import dying_with_parent

OUTPUT: Final = "lake-server.out"
"""What the JVM prints, in the folder of logs."""
_STARTED: Final = re.compile(r"Spark Connect server started at: \S*?:(\d+)\s")

_LOG4J: Final = """\
status = OFF
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.filePermissions = rw-------
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}}{{UTC}} UTC [%t] %p %c{{1}}: %m%n%ex{{40}}
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = {size}
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = {kept}
logger.start.name = org.apache.spark.sql.connect.service.SparkConnectServer
logger.start.level = info
logger.window.name = org.apache.spark.sql.execution.window.WindowExec
logger.window.level = error
logger.python.name = org.apache.spark.api.python.PythonWorkerFactory
logger.python.level = error
logger.conf.name = org.apache.spark.sql.internal.SQLConf
logger.conf.level = error
"""


@dataclass(slots=True)
class LakeServer:
    """A running (or starting) lake server; ``url`` is known once ``ready`` has returned."""

    process: subprocess.Popen[bytes]
    log_path: Path
    token: str = field(repr=False)
    archive: ClassArchive
    gateway: GatewayServer
    _offset: int = 0
    _output_offset: int = 0
    _port: int | None = None

    @classmethod
    def start(
        cls,
        data_dir: Path,
        *,
        memory: int,
        cores: int | None = None,
        catalog: Mapping[str, str] | None = None,
        conf: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> LakeServer:
        """Start the JVM and return at once.

        ``memory`` is the heap in bytes, ``catalog`` and ``conf`` the user's keys, ``pass_fds``
        the descriptors that the child inherits. Raises 55000 (no Java, or a jar that
        cannot be resolved) or 58030 (the folder cannot be used).
        """
        data_dir = data_dir.resolve()
        java = find_java()
        jars = resolved_jars(java, conf, catalog)
        lake_dir = data_dir / "lake"
        check_lake_folder(lake_dir)
        scratch, log_dir = lake_dir / "tmp", data_dir / "log"
        clear_scratch(scratch)
        for folder in (lake_dir, scratch, log_dir, lake_dir / WORKING_DIRECTORY):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not catalog:
            prepare_catalog(embedded_catalog_file(data_dir))
        log_path = log_dir / "lake-server.log"
        _touch_private(log_path)
        merged = server_conf(lake_dir, cores or processors(), catalog or {}, conf or {}, memory)
        properties = lake_dir / "server.properties"
        _write_private(properties, _as_properties(merged))
        log4j = lake_dir / "log4j2.properties"
        _write_private(
            log4j,
            _LOG4J.format(log=_escape(str(log_path)), size=LOG_FILE_BYTES, kept=LOG_KEPT_FILES),
        )
        directives = lake_dir / "compiler_directives.json"
        _write_private(directives, compiler_directives.compiler_directives())
        token = secrets.token_urlsafe(24)
        gateway = GatewayServer(scratch / "gateway", used=writes_here(conf or {}))
        offset = log_path.stat().st_size
        output = log_dir / OUTPUT
        first = without_defaults(ivy_home() / "jars", {**(catalog or {}), **(conf or {})})
        class_path, more = _class_path(first, jars)
        archive = ClassArchive.of(java, class_path, ivy_home(), cache_home(), more)
        keep_output_small(data_dir)
        _touch_private(output)
        with output.open("ab") as out:
            output_offset = out.tell()
            process = subprocess.Popen(
                dying_with_parent(
                    [
                        str(java.path),
                        *archive.options(),
                        *compiler_directives.options(directives),
                        *_crash_options(log_dir / "lake-server.crash"),
                        *_trust_options(scratch / "trust.jks"),
                        *_arguments(class_path + more, memory, cores, scratch, properties, log4j),
                    ]
                ),
                stdin=subprocess.PIPE,  # the gateway and the JVM end with the pipe
                stdout=out,
                stderr=out,
                cwd=lake_dir / WORKING_DIRECTORY,
                env=_environment(token, scratch) | gateway.environment(),
                pass_fds=tuple(pass_fds),
                start_new_session=True,
            )
        return cls(process, log_path, token, archive, gateway, offset, output_offset)

    def poll_ready(self) -> str | None:
        """The URL once the server listens, else None; raises 08006 if the server has ended."""
        self.gateway.poll()
        if self._port is None:
            self._port = self._port_in_log()
        if self.process.poll() is not None:
            raise ConnectionFailure(
                f"the lake server ended with status {self.process.returncode}",
                detail=self._last_words(),
                hint=f'Its log is "{self.log_path}".',
            )
        return None if self._port is None else self._url()

    def ready(self, timeout: float = LAKE_SERVER_READY_SECONDS) -> str:
        """Wait until the server listens and return the URL; raises 08006 after ``timeout`` s."""
        deadline = monotonic() + timeout
        while True:
            url = self.poll_ready()
            if url is not None:
                return url
            if monotonic() > deadline:
                raise ConnectionFailure(
                    f"the lake server did not start within {timeout:.0f} s",
                    hint=f'Its log is "{self.log_path}".',
                )
            try:
                self.process.wait(LAKE_SERVER_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                continue

    def stop(self, timeout: float = LAKE_SERVER_STOP_SECONDS) -> None:
        """End the server: politely, then by force. Commits in flight are lost, never halved."""
        if self.archive.partial is not None:
            timeout = max(timeout, LAKE_SERVER_ARCHIVE_SECONDS)
        peacefully = True
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                peacefully = False
                self.process.kill()
        status = self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.archive.finish(peacefully=peacefully and status in (0, 128 + signal.SIGTERM))

    def _url(self) -> str:
        return f"sc://localhost:{self._port}/;token={self.token}{self.gateway.parameter()}"

    def _port_in_log(self) -> int | None:
        try:
            text = _since(self.log_path, self._offset)
        except OSError:
            return None
        match = _STARTED.search(text)
        return int(match.group(1)) if match else None

    def _last_words(self) -> str:
        """The last error line of either log, for DETAIL.

        Only lines of the starting server count, which has run no query yet: an error of an earlier
        server may quote a row's value.
        """
        output = self.log_path.with_suffix(".out")
        for path, offset in ((self.log_path, self._offset), (output, self._output_offset)):
            try:
                lines = _since(path, offset).splitlines()
            except OSError:
                continue
            for line in reversed(lines[-200:]):
                if "ERROR" in line or "Error" in line or "Exception" in line:
                    return line.strip()[:300]
        return "It left no message."


_CATALOG_TABLES: Final = """
CREATE TABLE IF NOT EXISTS iceberg_tables (
    catalog_name VARCHAR(255) NOT NULL, table_namespace VARCHAR(255) NOT NULL,
    table_name VARCHAR(255) NOT NULL, metadata_location VARCHAR(1000),
    previous_metadata_location VARCHAR(1000), iceberg_type VARCHAR(5),
    PRIMARY KEY (catalog_name, table_namespace, table_name));
CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (
    catalog_name VARCHAR(255) NOT NULL, namespace VARCHAR(255) NOT NULL,
    property_key VARCHAR(255), property_value VARCHAR(1000),
    PRIMARY KEY (catalog_name, namespace, property_key));
"""
"""The tables that Iceberg's JDBC catalog creates at the first use, schema version V1."""


def prepare_catalog(path: Path) -> None:
    """Create the embedded catalog's tables and switch to WAL before the first session does.

    If two sessions did so at once, one session would fail: SQLite changes the journal's mode only
    while no second connection has the file open, and does not wait.
    """
    with contextlib.closing(sqlite3.connect(path, timeout=LAKE_CATALOG_BUSY_SECONDS)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(_CATALOG_TABLES)


def _crash_options(report: Path) -> list[str]:
    """Options for the crash report, which holds registers and stacks.

    The file exists before the crash, because the JVM must be able to open the file on a full disk.
    Otherwise the JVM writes a report that all users may read, at last to ``/tmp``.
    """
    _touch_private(report)
    return [
        f"-XX:ErrorFile={str(report).replace('%', '%%')}",
        "-XX:-CreateCoredumpOnCrash",
        "-XX:-DumpReplayDataOnError",
    ]


def _trust_options(store: Path) -> list[str]:
    """Let Java trust the authorities of ``SSL_CERT_FILE``: stores and catalogs may need them."""
    trusted = "SSL_CERT_FILE" in os.environ and write_trust_store(store)
    return [f"-Djavax.net.ssl.trustStore={store}"] if trusted else []


def _class_path(first: Sequence[Path], jars: Sequence[Path]) -> tuple[list[str], list[str]]:
    """What every catalog needs, which is in the archive of classes, and the jars that follow."""
    always = [*first, *jars[: len(JARS)], spark_home() / "jars" / "*"]
    return list(map(str, always)), list(map(str, jars[len(JARS) :]))


def _arguments(
    class_path: Sequence[str],
    memory: int,
    cores: int | None,
    scratch: Path,
    properties: Path,
    log4j: Path,
) -> list[str]:
    return [
        *memory_options(memory, cores or processors()),
        "-Xshare:auto",
        *MODULE_OPTIONS,
        f"-Djava.io.tmpdir={scratch}",
        f"-Dlog4j2.configurationFile={log4j}",
        "-Djava.net.preferIPv4Stack=true",
        "-Dfile.encoding=UTF-8",
        # Arrow checks every access to a vector otherwise; Spark's generated code is right.
        "-Darrow.enable_unsafe_memory_access=true",
        "-Darrow.enable_null_check_for_get=false",
        # Threads that read manifests: in a bucket each manifest is a request.
        f"-Diceberg.worker.num-threads={MANIFEST_THREADS}",
        # Each access to a store has manifests of its own: with lent keys every load of a table.
        "-Diceberg.io.manifest.cache.fileio-max=2",
        "-cp",
        os.pathsep.join(class_path),
        "org.apache.spark.deploy.SparkSubmit",
        *("--properties-file", str(properties)),
        *("--class", "org.apache.spark.api.python.PythonGatewayServer"),
        "pyspark-shell",
    ]


def _environment(token: str, scratch: Path) -> dict[str, str]:
    """The child's environment: the launcher's, and the variables that Spark's scripts set."""
    env = dict(os.environ)
    for key in ("SPARK_REMOTE", "SPARK_CONF_DIR", "JAVA_TOOL_OPTIONS", "PYTHONHOME"):
        env.pop(key, None)
    return env | {
        "SPARK_HOME": str(spark_home()),
        "SPARK_CONNECT_AUTHENTICATE_TOKEN": token,
        "SPARK_LOCAL_HOSTNAME": "localhost",
        "PYSPARK_PYTHON": sys.executable,
        SCRATCH_VARIABLE: str(scratch),
        # A task's Python must not import modules from the working directory.
        "PYTHONSAFEPATH": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
    }


def _as_properties(conf: Mapping[str, str]) -> str:
    return "".join(f"{key}={_escape(value)}\n" for key, value in conf.items())


def _escape(value: str) -> str:
    """A value in the format of java.util.Properties."""
    value = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return "\\" + value if value[:1] in (" ", "\t") else value


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
        handle.write(text)


def _since(path: Path, offset: int) -> str:
    """The text of a log after ``offset``; the whole log if a new file was begun since."""
    with path.open("rb") as handle:
        handle.seek(offset if handle.seek(0, os.SEEK_END) >= offset else 0)
        return handle.read().decode("utf-8", "replace")


def keep_output_small(data_dir: Path) -> None:
    """Move a large ``lake-server.out`` aside; a server that runs goes on writing to the file.

    The JVM has the file open and appends, so the text is copied and the file is emptied. What the
    JVM prints between the two is lost. A file that cannot be copied stays as it is.
    """
    output = data_dir / "log" / OUTPUT
    with contextlib.suppress(OSError):
        if output.stat().st_size >= LOG_FILE_BYTES:
            aside = output.with_name(f"{OUTPUT}.1")
            _touch_private(aside)
            shutil.copyfile(output, aside)
            os.truncate(output, 0)


def _touch_private(path: Path) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    path.chmod(0o600)
