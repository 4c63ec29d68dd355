"""What a table is like now: through the gateway in one call, else through Spark in three.

A query of the table's metadata is a job of Spark's: to read a table so takes a tenth of a second
and as much CPU, a table that is not there a little less. Its metadata file takes a hundredth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.errcodes import ReplicationError
from workers.lake.api.table_api import Gateway
from workers.lake.connect.errors import is_missing
from workers.lake.connect.session import LakeSession
from workers.lake.connect.sessions import Sessions
from workers.lake.metadata.table_schema import columns_of
from workers.lake.metadata.table_state import TableState, state_of
from workers.lake.refusals import changed_meanwhile
from workers.lake.sql.spark_typemap import arrow_type
from workers.lake.sql.statements import sql_text, table_path, text
from workers.lake.sql.table_metadata import read_branches, read_history, read_properties
from workers.lake.table import MAIN, LakeColumn, LakeIdent


def read_state(sessions: Sessions, gateway: Gateway | None, ident: LakeIdent) -> TableState | None:
    """The table as it is, nothing cached; None where there is none."""
    if gateway is not None:
        metadata = gateway.described(ident, f'reading lake table "{ident}"')
        if metadata is None:
            return None
        state = state_of(metadata)
        if state is not None:
            return state
    session = sessions.get()
    try:
        columns = _spark_columns(session, ident)
        return TableState(columns, read_history(session, ident), read_properties(session, ident))
    except ReplicationError as error:
        if is_missing(error):
            return None
        raise


def read_columns(
    sessions: Sessions, gateway: Gateway | None, ident: LakeIdent
) -> tuple[LakeColumn, ...]:
    """The table's columns; raises where there is no such table."""
    if gateway is not None:
        columns = columns_of(gateway.metadata(ident, f'reading lake table "{ident}"'))
        if columns is not None:
            return columns
    return _spark_columns(sessions.get(), ident)


def branches(sessions: Sessions, gateway: Gateway | None, ident: LakeIdent) -> list[str]:
    """The names of its branches; none where there is no such table."""
    if gateway is None:
        return read_branches(sessions.get(), ident)
    metadata = gateway.described(ident, f'reading the branches of lake table "{ident}"')
    refs: Mapping[str, Any] = {} if metadata is None else metadata.get("refs", {})
    named = [name for name, ref in refs.items() if ref["type"] == "branch"]
    return named or ([] if metadata is None else [MAIN])


def check_ours(session: LakeSession, ident: LakeIdent, branch: str) -> None:
    """40001 where a branch that is there is not the one that we made.

    Somebody dropped that. An append through Spark does not miss it: Iceberg makes the branch anew
    where ``main`` is, without what had come before. To ours we give an age; that has none.
    """
    rows = session.query(
        sql_text(
            "SELECT max_reference_age_in_ms FROM",
            table_path(ident, "refs"),
            "WHERE name =",
            text(branch),
        ),
        f'reading a branch of lake table "{ident}"',
    )
    if rows.num_rows and not rows.column(0)[0].is_valid:
        raise changed_meanwhile(ident)


def _spark_columns(session: LakeSession, ident: LakeIdent) -> tuple[LakeColumn, ...]:
    schema: Any = session.schema(
        sql_text("SELECT * FROM", table_path(ident)), f'reading lake table "{ident}"'
    )
    return tuple(
        LakeColumn(field.name, arrow_type(field.dataType), field.nullable)
        for field in schema.fields
    )
