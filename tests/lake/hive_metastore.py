"""A Hive Metastore on the loopback interface: the server in the jars that Spark brings along.

The metastore keeps its tables' names and its locks in Derby. It makes the folder of every table
itself, so it has to know the tables' store: here Hadoop's view of folders says that ``s3://bucket``
is a local one. Those folders stay empty: the files of tables are written into the store, by others.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.ports import free_port
from tests.waiting import wait_until
from workers.lake.server.jars import spark_home
from workers.lake.server.java import MODULE_OPTIONS, find_java
from workers.parent_death import dying_with_parent

_PATIENCE: Final = 120.0
_LOG4J: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d [%t] %p %c: %m%n%ex{20}
"""
_LOCK_TABLES: Final = """\
CREATE TABLE next_lock_id (nl_next bigint NOT NULL);
INSERT INTO next_lock_id VALUES (1);
CREATE TABLE aux_table (mt_key1 varchar(128), mt_key2 bigint, mt_comment varchar(255),
    PRIMARY KEY (mt_key1, mt_key2));
CREATE TABLE hive_locks (hl_lock_ext_id bigint, hl_lock_int_id bigint, hl_txnid bigint,
    hl_db varchar(128), hl_table varchar(128), hl_partition varchar(767), hl_lock_state char(1),
    hl_lock_type char(1), hl_last_heartbeat bigint, hl_acquired_at bigint, hl_user varchar(128),
    hl_host varchar(128), hl_heartbeat_count integer, hl_agent_info varchar(128),
    hl_blockedby_ext_id bigint, hl_blockedby_int_id bigint,
    PRIMARY KEY (hl_lock_ext_id, hl_lock_int_id));
"""
"""Of the tables that Hive's schema script makes, those of the locks. The metastore makes the others
by itself."""


@dataclass(frozen=True, slots=True)
class HiveMetastore:
    """A running metastore; ``port`` is on the loopback interface."""

    port: int
    log: Path

    @property
    def uri(self) -> str:
        """What ``lake.catalog`` names."""
        return f"thrift://127.0.0.1:{self.port}"


@contextmanager
def hive_metastore(folder: Path, bucket: str, *, locks: bool = True) -> Iterator[HiveMetastore]:
    """A metastore without tables, whose tables may lie in the bucket or on the local disk.

    Without ``locks`` the tables of locks are missing, as if nobody had run Hive's schema script.
    """
    port, log = free_port(), folder / "metastore.log"
    (folder / "log4j2.properties").write_text(_LOG4J)
    for name in ("view", "warehouse"):
        (folder / name).mkdir()
    _make_database(folder, _LOCK_TABLES if locks else "")
    words = ["org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port)]
    for name, value in _settings(folder, bucket).items():
        words += ["--hiveconf", f"{name}={value}"]
    options = [
        f"-Dhive.log4j.file={folder / 'log4j2.properties'}",
        "-Dhive.async.log.enabled=false",
    ]
    with log.open("wb") as out:
        server = subprocess.Popen(
            dying_with_parent(_java(folder, *MODULE_OPTIONS, *options) + words),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=folder,
            env={"PATH": os.environ.get("PATH", "")},
        )
    try:
        wait_until(lambda: _answers(server, port, log), _PATIENCE, f"the metastore listens: {log}")
        yield HiveMetastore(port, log)
    finally:
        server.terminate()
        server.wait(30)


def _java(folder: Path, *options: str) -> list[str]:
    places = [f"-Djava.io.tmpdir={folder}", f"-Dderby.system.home={folder}"]
    jars = ["-cp", f"{spark_home()}/jars/*"]
    return [str(find_java().path), "-Xmx256m", "-XX:+UseSerialGC", *options, *places, *jars]


def _make_database(folder: Path, statements: str) -> None:
    script = folder / "metastore.sql"
    database = f"jdbc:derby:{folder / 'metastore'};create=true"
    script.write_text(f"connect '{database}' user 'APP' password 'mine';\n{statements}")
    done = subprocess.run(
        [*_java(folder), "org.apache.derby.tools.ij", str(script)],
        check=True,
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert "ERROR" not in done.stdout, done.stdout


def _settings(folder: Path, bucket: str) -> Mapping[str, str]:
    view = f"fs.viewfs.mounttable.{bucket}"
    return {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:{folder / 'metastore'}",
        "datanucleus.schema.autoCreateAll": "true",
        "datanucleus.connectionPoolingType": "dbcp",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": str(folder / "warehouse"),
        "fs.s3.impl": "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme",
        f"{view}.linkFallback": f"file://{folder / 'view'}",
        f"{view}.link./none": f"file://{folder / 'view'}",
    }


def _answers(server: subprocess.Popen[bytes], port: int, log: Path) -> bool:
    assert server.poll() is None, f"the metastore ended:\n{log.read_text()[-3000:]}"
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
