"""Iceberg's metadata tables, read by Spark SQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.errcodes import InternalError, ReplicationError
from workers.lake.connect.errors import is_missing
from workers.lake.connect.session import LakeSession
from workers.lake.metadata.snapshots import (
    READ_KEYS,
    History,
    Snapshot,
    is_foreign,
    is_ours,
    sources_of,
    stamp_of,
)
from workers.lake.sql.statements import sql_text, table_path, text
from workers.lake.table import LakeIdent


def read_history(session: LakeSession, ident: LakeIdent) -> History:
    """All refs and snapshots, in a single query."""
    summary = ", ".join(f"summary[{text(key).sql(dialect='spark')}]" for key in READ_KEYS)
    nothing = ", ".join(["CAST(NULL AS STRING)"] * (len(READ_KEYS) + 1))
    sql = sql_text(
        "SELECT name, snapshot_id, CAST(NULL AS BIGINT) parent_id, CAST(NULL AS BIGINT) committed,",
        f"{nothing} FROM",
        table_path(ident, "refs"),
        "UNION ALL SELECT NULL, snapshot_id, parent_id, unix_millis(committed_at),",
        f"{summary}, operation FROM",
        table_path(ident, "snapshots"),
    )
    rows = session.query(sql, f'reading the snapshots of lake table "{ident}"')
    refs: dict[str, int] = {}
    snapshots: dict[int, Snapshot] = {}
    for name, snapshot_id, parent_id, committed, *values in zip(
        *(column.to_pylist() for column in rows.columns), strict=True
    ):
        if name is not None:
            refs[name] = snapshot_id
        else:
            snapshots[snapshot_id] = Snapshot(
                snapshot_id,
                parent_id,
                stamp_of(values[:5]),
                sources_of(values[5]),
                None if values[6] is None else int(values[6]),
                int(values[7] or 0),
                foreign=is_foreign(summary_of(values), values[-1]),
                committed=committed or 0,
                ours=is_ours(summary_of(values)),
            )
    return History(refs, snapshots)


def summary_of(values: list[str | None]) -> dict[str, str | None]:
    """The summary of a snapshot, from the values of a row of ``read_history``."""
    return dict(zip(READ_KEYS, values[:-1], strict=True))


def read_once_on_main(session: LakeSession, ident: LakeIdent) -> frozenset[int]:
    """The snapshots that ``main`` was at, as far as the table remembers."""
    sql = sql_text("SELECT snapshot_id FROM", table_path(ident, "history"))
    rows = session.query(sql, f'reading the history of lake table "{ident}"')
    ids: list[Any] = rows.column(0).to_pylist()
    return frozenset(ids)


def read_tip(ident: LakeIdent, properties: Mapping[str, str]) -> int:
    """The newest snapshot of ``main``, out of the table's ``properties``; XX000 if none is named.

    Reading the properties starts no Spark job and takes a tenth of the time of ``read_history``.
    """
    found = properties.get("current-snapshot-id", "none")
    if not found.isdecimal():
        raise InternalError(f'lake table "{ident}" does not say which snapshot it is at')
    return int(found)


def read_branches(session: LakeSession, ident: LakeIdent) -> list[str]:
    """The names of the table's branches; empty if the table does not exist."""
    what = f'reading the branches of lake table "{ident}"'
    try:
        rows = session.query(
            sql_text("SELECT name FROM", table_path(ident, "refs"), "WHERE type = 'BRANCH'"), what
        )
    except ReplicationError as error:
        if is_missing(error):
            return []
        raise
    names: list[Any] = rows.column(0).to_pylist()
    return names


def read_properties(session: LakeSession, ident: LakeIdent) -> dict[str, str]:
    """The table's properties, with ``format-version`` and ``current-snapshot-id``."""
    what = f'reading the properties of lake table "{ident}"'
    rows = session.call(sql_text("SHOW TBLPROPERTIES", table_path(ident)), what)
    if rows is None:
        raise ReplicationError(f"the lake gave no answer to {what}")
    return dict(zip(*(rows.column(name).to_pylist() for name in ("key", "value")), strict=True))


def read_location(session: LakeSession, ident: LakeIdent) -> str | None:
    """The folder of the table's files, None if Spark does not tell the folder."""
    what = f'reading the location of lake table "{ident}"'
    rows = session.query(sql_text("DESCRIBE TABLE EXTENDED", table_path(ident)), what)
    columns = (rows.column(name).to_pylist() for name in ("col_name", "data_type"))
    # Below the columns, of which one may have the name, too.
    found = [value for name, value in zip(*columns, strict=True) if name == "Location"]
    return found[-1] if found else None
