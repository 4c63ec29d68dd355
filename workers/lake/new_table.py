"""A table that comes to be, and the schema it is in."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from workers.lake.conf import CATALOG
from workers.lake.counts import LakeIdent
from workers.lake.destination import LakeColumn
from workers.lake.failures import LakeFailure
from workers.lake.session import LakeSession
from workers.lake.statements import (
    create_namespace,
    create_table,
    new_table_properties,
    table_location,
)


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
    unique = uuid.uuid4().hex[:8]
    properties = new_table_properties(owner, format_version)
    location = table_location(warehouse, ident, relid, unique) if warehouse else None
    sql = create_table(ident, columns, properties=properties, location=location)
    session.command(sql, f'creating lake table "{ident}"')


def _make_namespace(session: LakeSession, ident: LakeIdent) -> None:
    """CREATE NAMESPACE IF NOT EXISTS, which two sessions at once make fail in one of them."""
    what = f'creating schema "{ident.schema}"'
    try:
        session.command(create_namespace(ident), what)
    except LakeFailure:
        session.command(create_namespace(ident), what)
