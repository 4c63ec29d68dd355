"""Chooses the way a worker commits to the lake: only here is the gateway asked for."""

from __future__ import annotations

from workers.lake.api.gateway import gateway_of
from workers.lake.api.table_api import GatewayTableApi
from workers.lake.connect.sessions import Sessions
from workers.lake.files.tables import DirectTables, SparkTables
from workers.lake.interfaces.table_api import FileCommits, TableApi
from workers.lake.sql.table_api import SqlTableApi
from workers.lake.storage.staging import Staging


def choose_table_api(url: str, sessions: Sessions) -> tuple[TableApi, FileCommits | None]:
    """The API for tables of the lake server at ``url``, and the commits that name files.

    The commits are None if Spark has to write all files.
    """
    sql = SqlTableApi(sessions)
    gateway = gateway_of(url)
    if gateway is None:
        return sql, None
    api = GatewayTableApi(gateway, sql, sessions)
    return api, api


def choose_tables(commits: FileCommits | None, staging: Staging) -> SparkTables:
    """The tables for which a worker writes the files, given ``commits``; else no table."""
    return SparkTables(staging) if commits is None else DirectTables(commits, staging)
