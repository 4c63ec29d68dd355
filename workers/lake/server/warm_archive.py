"""Makes the archive of the lake server's classes once, after an installation.

A JVM writes the archive when the JVM *ends* (``class_archive``), and only after a regular end:
until then every start takes twice as long. ``warm`` starts a server, does the work of a worker on a
test table, and so loads the classes that workers need.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa

from catalog.pg_lsn import LSN
from config.guc import Settings
from config.limits import WARM_ARCHIVE_SECONDS, WARM_SERVER_MEMORY_BYTES
from workers.lake.iceberg.destination import IcebergDestination
from workers.lake.segment import Segment
from workers.lake.server.lake_server import LakeServer
from workers.lake.table import Identity, LakeColumn, LakeIdent, Stamp

_TABLE = LakeIdent("warm", "t")
_COLUMNS = (LakeColumn("k", pa.int64()), LakeColumn("v", pa.string()))
_BRANCH = "pgsub_0_0_1"


def warm() -> None:
    """Start a server, write and publish a table, end the server; a second if the archive exists.

    Raises as ``LakeServer.start`` does.
    """
    with tempfile.TemporaryDirectory(prefix="pgsub-warm-") as scratch:
        server = LakeServer.start(Path(scratch), memory=WARM_SERVER_MEMORY_BYTES)
        try:
            if server.archive.partial is not None:
                _work(server.ready(), Path(scratch))
        finally:
            server.stop(WARM_ARCHIVE_SECONDS)


def _work(url: str, scratch: Path) -> None:
    lake = IcebergDestination(
        url,
        identity=Identity(0),
        staging_dir=scratch / "staging",
        settings=Settings(local_relation_rows=1),
        remember_session=lambda _user, _session: None,
    )
    try:
        lake.create_table(_TABLE, _COLUMNS, owner="warm", relid=0, stamp=_stamp(1))
        lake.fence(_TABLE)
        for lsn, rows in ((2, 1), (3, 2)):  # inside the plan, and from files
            lake.create_branch(_TABLE, _BRANCH)
            lake.write(_TABLE, _BRANCH, [_segment(lake, rows)], _stamp(lsn))
            lake.publish(_TABLE, _BRANCH, _stamp(lsn))
            lake.drop_branches(_TABLE)
        lake.expire(_TABLE, retain=1)
    finally:
        lake.close()


def _segment(lake: IcebergDestination, rows: int) -> Segment:
    keys, values = pa.array(range(rows), pa.int64()), pa.array(["v"] * rows)
    added = pa.table({"c0": keys, "c1": values})
    op = pa.array([0] * rows, pa.int8())
    changed = pa.table({"op": op, "b0": keys, "c0": keys, "c1": values})
    merge, append = (lake.stage(each.to_batches(), each.schema) for each in (changed, added))
    return Segment(("k", "v"), ("k",), merge=merge, append=append)


def _stamp(lsn: int) -> Stamp:
    return Stamp("warm", LSN(lsn), "warm", LSN(0))
