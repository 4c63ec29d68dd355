"""Choose how a worker commits to the lake.

Of the writing, only this module asks whether there is a gateway.

``writers_for`` chooses once per table and batch, all other functions once per destination.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from workers.lake.api.gateway import Gateway, gateway_of
from workers.lake.api.session_catalogs import SessionCatalogs
from workers.lake.api.table_api import GatewayTableApi
from workers.lake.connect.session_conf import processors
from workers.lake.connect.sessions import CloseCatalogs, Sessions
from workers.lake.files.keys.key_cache import KeyCache
from workers.lake.files.keys.key_files import open_key_files
from workers.lake.files.tables import FileTables, SparkTables
from workers.lake.interfaces.segment_writer import CommitNames, SegmentWriter
from workers.lake.interfaces.table_api import FileCommits, TableApi
from workers.lake.sql.other_writers import OtherWriters
from workers.lake.sql.row_queries import RowQueries
from workers.lake.sql.segment_writer import MergeSegmentWriter
from workers.lake.sql.table_api import SqlTableApi
from workers.lake.storage.staging import Staging
from workers.lake.table import MAIN, LakeColumn
from workers.lake.writer_choice import AUTO

_READING_TASKS: Final = "spark.sql.iceberg.read.adaptive-split-size.parallelism"
"""The tasks that Iceberg cuts a table into to read the table, by default as many as may run."""


def choose_gateway(
    url: str, conf: Mapping[str, str]
) -> tuple[Gateway | None, dict[str, str], CloseCatalogs | None]:
    """The gateway of the lake server at ``url``, the keys of sessions, and what closes catalogs.

    The sessions of a commit service's workers are not on the service. ``conf`` are the
    destination's keys of sessions. The embedded server may run more tasks at a time than there are
    processors, for tables in a store. Each task of a MERGE writes a file, so a session
    of a worker cuts no table into so many tasks.
    """
    gateway = gateway_of(url)
    if gateway is None or gateway.beside:
        return gateway, dict(conf), None
    keys = {_READING_TASKS: str(processors()), **conf}
    return gateway, keys, SessionCatalogs(gateway).close


def choose_table_api(
    gateway: Gateway | None, sessions: Sessions
) -> tuple[TableApi, FileCommits | None]:
    """The ``TableApi`` for a lake server, and the ``FileCommits`` if there are any.

    Without ``FileCommits`` Spark has to write all files.
    """
    sql = SqlTableApi(sessions)
    if gateway is None:
        return sql, None
    api = GatewayTableApi(gateway, sql, sessions)
    return api, api


def choose_tables(
    commits: FileCommits | None,
    staging: Staging,
    writer: str = AUTO,
    keys_dir: Path | None = None,
    key_cache: int = 0,
) -> SparkTables:
    """The tables of a destination. Only with ``commits`` can pgsub write files of a table.

    ``writer`` is the configuration's word for tables without a word of their own. ``keys_dir`` has
    ``key_cache`` bytes of the keys of data files at most.
    """
    if commits is None:
        return SparkTables(staging, writer)
    keys = KeyCache(files=open_key_files(keys_dir, key_cache))
    beside = isinstance(commits, GatewayTableApi) and commits.beside
    return FileTables(commits, staging, writer, keys, beside=beside)


@dataclass(frozen=True, slots=True)
class Writers:
    """The writers of a batch. The first in order that accepts a segment applies the segment.

    ``merge`` is the last writer. Only Spark truncates, and only Spark looks up keys that may be
    new. ``names`` are for all commits of the batch.
    """

    in_order: Sequence[SegmentWriter]
    merge: MergeSegmentWriter
    names: CommitNames


def writers_for(
    file_tables: SparkTables,
    tables: TableApi,
    queries: RowQueries,
    columns: Sequence[LakeColumn],
    other_writers: OtherWriters,
    *,
    may_hold: bool = False,
) -> Writers:
    """The writers for a batch on the queries' branch: files first, then Spark.

    Spark alone for tables whose files pgsub cannot write, and for ``main``. ``may_hold``: see
    ``FileChange``.
    """
    names = CommitNames()
    merge = MergeSegmentWriter(tables, queries, columns, names, other_writers)
    files = None
    if queries.branch != MAIN:
        files = file_tables.writer(queries, other_writers, may_hold=may_hold)
    if files is None:
        return Writers((merge,), merge, names)
    merge.before_commit = files.forget_files
    return Writers((files, merge), merge, names)
