"""A table that comes to be, and the schema it is in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workers.lake.api.table_api import Gateway
from workers.lake.connect.errors import LakeFailure
from workers.lake.connect.session import LakeSession
from workers.lake.connect.session_conf import CATALOG
from workers.lake.connect.sessions import Sessions
from workers.lake.metadata.table_location import _location
from workers.lake.metadata.table_schema import schema_json
from workers.lake.sql.statements import create_namespace, create_table, new_table_properties
from workers.lake.table import LakeColumn, LakeIdent, LakeTable, Stamp


def make_table(
    session: LakeSession,
    ident: LakeIdent,
    columns: Sequence[LakeColumn],
    *,
    owner: str,
    relid: int,
    format_version: int,
) -> None:
    """Make it, without a snapshot. LakeFailure, among other reasons, where it is there already."""
    _make_namespace(session, ident)
    warehouse = session.conf(f"spark.sql.catalog.{CATALOG}.warehouse")
    properties = new_table_properties(owner, format_version)
    location = _location(warehouse, ident, relid)
    sql = create_table(ident, columns, properties=properties, location=location)
    session.command(sql, f'creating lake table "{ident}"')


def make_table_with_snapshot(
    gateway: Gateway,
    sessions: Sessions,
    ident: LakeIdent,
    columns: Sequence[LakeColumn],
    *,
    owner: str,
    relid: int,
    format_version: int,
    summary: Mapping[str, str],
) -> Mapping[str, Any]:
    """Make it with an empty snapshot, in one commit; its metadata. LakeFailure as above."""
    what = f'creating lake table "{ident}"'
    if not gateway.has_namespace(ident.schema, what):
        _make_namespace(sessions.get(), ident)
    return gateway.create_table(
        ident,
        schema=schema_json(columns),
        location=_location(gateway.warehouse(what), ident, relid),
        properties=new_table_properties(owner, format_version),
        summary=summary,
        what=what,
    )


def is_unfinished(
    table: LakeTable, columns: Sequence[LakeColumn], owner: str, stamp: Stamp
) -> bool:
    """Whether a table is ours and as new: made with such a stamp, or without a snapshot.

    Who made it is dead, or has had no answer.
    """
    if table.owner != owner or _shape(table.columns) != _shape(columns):
        return False
    if table.snapshot_id is None:
        return True
    same = table.stamp is None or (table.stamp.lsn, table.stamp.floor) == (stamp.lsn, stamp.floor)
    return table.records == 0 and not table.sources and same


def _shape(columns: Sequence[LakeColumn]) -> list[tuple[str, str]]:
    return [(column.name, str(column.type)) for column in columns]


def _make_namespace(session: LakeSession, ident: LakeIdent) -> None:
    """CREATE NAMESPACE IF NOT EXISTS, which two sessions at once make fail in one of them."""
    what = f'creating schema "{ident.schema}"'
    try:
        session.command(create_namespace(ident), what)
    except LakeFailure:
        session.command(create_namespace(ident), what)
