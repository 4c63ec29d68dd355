"""The status views as tables of the lake, ``lake.pg_catalog.<view>``.

The tables hold no replicated rows: no branch, no fence, no position. A write replaces all rows of a
table in a single commit, so a reader sees a state of the view that was true at some moment. If the
table is missing, or has the columns of a different version, the commit creates the table anew. The
commit carries a digest of the rows: an unchanged view is not written again.

Old snapshots expire when there are twenty; expiring takes longer than writing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from sqlglot import exp

from catalog.errcodes import ReplicationError
from config.limits import STATUS_SNAPSHOTS
from workers.lake.connect.errors import is_missing
from workers.lake.connect.session import LakeSession
from workers.lake.connect.sessions import CloseCatalogs, Sessions
from workers.lake.metadata.snapshots import write_options
from workers.lake.sql.statements import call, create_namespace, name_of, sql_text, table_path, text
from workers.lake.table import LakeIdent

SCHEMA: Final = "pg_catalog"
DIGEST: Final = "pgsub.digest"

SNAPSHOTS_AT_MOST: Final = 2 * STATUS_SNAPSHOTS

_USER_ID: Final = "pgsub status"
PROPERTIES: Final = {
    "format-version": "2",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": str(STATUS_SNAPSHOTS),
}


@dataclass(frozen=True, slots=True)
class StatusTable:
    """The rows of a view, and digests of the columns and of the rows."""

    rows: pa.Table
    columns_digest: str
    rows_digest: str

    @property
    def digest(self) -> str:
        """Both digests, as a snapshot carries them."""
        return f"{self.columns_digest} {self.rows_digest}"


@dataclass(frozen=True, slots=True)
class _Written:
    """The digest in the table's last snapshot, and the number of snapshots."""

    digest: str | None
    snapshots: int


def write_status_tables(
    url: str,
    tables: Mapping[str, StatusTable],
    *,
    session: tuple[str, str] | None = None,
    leave: Callable[[str, str], None] | None = None,
    close_catalogs: CloseCatalogs | None = None,
) -> list[str]:
    """Bring ``lake.pg_catalog.<name>`` up to date for each table. Returns the names written.

    ``session`` is a session to take over, and ``leave`` gets the ids of the session that stays open
    for the next write. Raises the lake's errors (08006 and more); the tables before the failed
    table are written, and no session stays open.
    """
    sessions = Sessions(
        url,
        _USER_ID,
        lambda user_id, session_id: None,
        handed_over=session,
        close_catalogs=close_catalogs,
    )
    written: list[str] = []
    try:
        for name, table in tables.items():
            if _bring_up_to_date(sessions.get(), LakeIdent(SCHEMA, name), table):
                written.append(name)
        if leave is not None and (left := sessions.release_for_reuse()) is not None:
            leave(*left)
    finally:
        sessions.close()
    return written


def _bring_up_to_date(session: LakeSession, ident: LakeIdent, table: StatusTable) -> bool:
    found = _read(session, ident)
    if found is None:
        session.command(create_namespace(ident), f'creating schema "{SCHEMA}"')
    elif found.digest == table.digest:
        return False
    rows, name, what = session.local(table.rows), name_of(table_path(ident)), f'writing "{ident}"'
    options = write_options({DIGEST: table.digest})
    if found is not None and (found.digest or "").startswith(f"{table.columns_digest} "):
        session.overwrite(rows, name, options, what)
    else:
        session.replace(rows, name, PROPERTIES, options, what)
    if found is not None and found.snapshots + 1 >= SNAPSHOTS_AT_MOST:
        _expire(session, ident)
    return True


def _read(session: LakeSession, ident: LakeIdent) -> _Written | None:
    """The digest and the number of snapshots; None if the table does not exist."""
    digest = text(DIGEST).sql(dialect="spark")
    sql = sql_text(
        f"SELECT max_by(summary[{digest}], committed_at), count(*) FROM",
        table_path(ident, "snapshots"),
    )
    try:
        rows = session.query(sql, f'reading status table "{ident}"')
    except ReplicationError as error:
        if is_missing(error):
            return None
        raise
    return _Written(rows.column(0)[0].as_py(), rows.column(1)[0].as_py())


def _expire(session: LakeSession, ident: LakeIdent) -> None:
    session.command(
        call(
            "expire_snapshots",
            ident,
            older_than=exp.Var(this="TIMESTAMP '2999-01-01 00:00:00+00:00'"),
            retain_last=exp.Literal.number(STATUS_SNAPSHOTS),
        ),
        f'expiring snapshots of status table "{ident}"',
    )
