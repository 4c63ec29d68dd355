"""``TableApi`` in Spark SQL, for every Spark Connect server.

A query of the table's metadata is a Spark job: reading a table takes a tenth of a second and as
much CPU time, reading a table that does not exist a little less. The gateway reads the table's
metadata file in a hundredth of a second.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.connect import functions as F  # noqa: N812 - its usual name
from sqlglot import exp

from catalog.errcodes import DuplicateTable, FeatureNotSupported, ReplicationError, UndefinedTable
from catalog.table_layout import LayoutField
from workers.lake.column_changes import ColumnChange, Remember
from workers.lake.connect.errors import LakeFailure, is_missing
from workers.lake.connect.session_conf import CATALOG
from workers.lake.connect.sessions import Sessions
from workers.lake.effects import ListFiles
from workers.lake.interfaces.table_api import TableApi
from workers.lake.metadata.snapshots import History, history_of_new_table, write_options
from workers.lake.metadata.table_location import given_warehouse, new_location
from workers.lake.metadata.table_state import TableState
from workers.lake.new_layout import NewTable
from workers.lake.publication import InParallel, Publication
from workers.lake.refusals import changed_meanwhile, no_call_for_several
from workers.lake.sql import statements
from workers.lake.sql.spark_typemap import arrow_type, spark_ddl_or_void
from workers.lake.sql.statements import branch_path, call, name_of, sql_text, table_path, text
from workers.lake.sql.table_metadata import (
    read_branches,
    read_history,
    read_once_on_main,
    read_properties,
    read_tip,
)
from workers.lake.table import MAIN, LakeColumn, LakeIdent, Stamp


class SqlTableApi(TableApi):
    """``TableApi`` in Spark SQL; a thread uses the thread's session of ``sessions``."""

    lists_expiries = False
    changes_columns = False
    moves_together = False

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    # -- reading ----------------------------------------------------------------------------------

    def describe(self, ident: LakeIdent) -> TableState | None:
        """The table, in three statements."""
        session = self._sessions.get()
        try:
            return TableState(
                self.columns(ident), read_history(session, ident), read_properties(session, ident)
            )
        except ReplicationError as error:
            if is_missing(error):
                return None
            raise

    def columns(self, ident: LakeIdent) -> tuple[LakeColumn, ...]:
        """The table's columns."""
        schema: Any = self._sessions.get().schema(
            sql_text("SELECT * FROM", table_path(ident)), f'reading lake table "{ident}"'
        )
        return tuple(
            LakeColumn(field.name, arrow_type(field.dataType), field.nullable)
            for field in schema.fields
        )

    def history(self, ident: LakeIdent) -> History:
        """All branches and snapshots, in one query."""
        return read_history(self._sessions.get(), ident)

    def branches(self, ident: LakeIdent) -> list[str]:
        """The names of the table's branches."""
        return read_branches(self._sessions.get(), ident)

    def once_on_main(self, ident: LakeIdent) -> Collection[int]:
        """The snapshots that ``main`` was at."""
        return read_once_on_main(self._sessions.get(), ident)

    # -- creating and dropping tables -------------------------------------------------------------

    def create_table(
        self,
        ident: LakeIdent,
        columns: Sequence[LakeColumn],
        new: NewTable,
        summary: Mapping[str, str],
    ) -> TableState:
        """CREATE TABLE, then an empty snapshot: two commits."""
        try:
            self.create_without_snapshot(ident, columns, new)
        except LakeFailure:
            # Looked for only now: nearly no table exists, and a missing table takes long to read.
            if self.describe(ident) is None:
                raise
            raise DuplicateTable(f'lake table "{ident}" already exists') from None
        created = self.columns(ident)
        self.commit_empty(ident, MAIN, summary, created)
        # No second worker writes to the table yet: only the snapshot's number is unknown.
        session = self._sessions.get()
        properties = read_properties(session, ident)
        history = history_of_new_table(read_tip(ident, properties), summary)
        return TableState(created, history, properties)

    def create_without_snapshot(
        self, ident: LakeIdent, columns: Sequence[LakeColumn], new: NewTable
    ) -> None:
        """CREATE TABLE. LakeFailure if the table exists, and for further reasons."""
        self.create_schema(ident)
        session = self._sessions.get()
        known = ("type", "catalog-impl", "warehouse")
        conf = {key: session.conf(f"spark.sql.catalog.{CATALOG}.{key}") or "" for key in known}
        location = new.layout.location or new_location(given_warehouse(conf), ident, new.relid)
        sql = statements.create_table(
            ident,
            columns,
            properties=statements.new_table_properties(new, location),
            location=location,
            partition_by=new.layout.partition_by,
        )
        session.command(sql, f'creating lake table "{ident}"')
        self.set_order(ident, new.layout.sort_by)

    def set_order(self, ident: LakeIdent, sort_by: Sequence[LayoutField]) -> None:
        """Set the sort order of a table without rows."""
        if sort_by:
            sql = statements.sort_table(ident, sort_by)
            self._sessions.get().command(sql, f'sorting lake table "{ident}"')

    def create_schema(self, ident: LakeIdent) -> None:
        """CREATE NAMESPACE IF NOT EXISTS of the table's schema.

        If two sessions run the statement at once, the statement fails in one session. A second try
        succeeds.
        """
        session, what = self._sessions.get(), f'creating schema "{ident.schema}"'
        try:
            session.command(statements.create_namespace(ident), what)
        except LakeFailure:
            session.command(statements.create_namespace(ident), what)

    def drop_table(self, ident: LakeIdent) -> None:
        """DROP TABLE IF EXISTS with the table's files, where Iceberg lets the files be deleted."""
        session, what = self._sessions.get(), f'dropping lake table "{ident}"'
        drop = sql_text("DROP TABLE IF EXISTS", table_path(ident))
        try:
            session.command(f"{drop} PURGE", what)
        except LakeFailure as error:
            # ``gc.enabled`` is false: a catalog, or a person, keeps the files for other tables.
            if "GC is disabled" not in error.message:
                raise
            session.command(drop, what)

    def rename_table(self, ident: LakeIdent, new: LakeIdent) -> None:
        """ALTER TABLE … RENAME TO; the new schema is created if need be."""
        self.create_schema(new)
        what = f'renaming lake table "{ident}" to "{new}"'
        try:
            self._sessions.get().command(statements.rename_table(ident, new), what)
        except LakeFailure as error:
            if is_missing(error):
                raise UndefinedTable(f'lake table "{ident}" does not exist') from None
            if self.describe(new) is not None:
                raise DuplicateTable(f'lake table "{new}" already exists') from None
            if "UnsupportedOperationException" in error.message:
                raise FeatureNotSupported("the lake's catalog cannot rename tables") from None
            raise

    def set_properties(self, ident: LakeIdent, properties: Mapping[str, str], what: str) -> None:
        """ALTER TABLE … SET TBLPROPERTIES."""
        self._sessions.get().command(statements.set_properties(ident, properties), what)

    def change_columns(
        self, ident: LakeIdent, changes: Sequence[ColumnChange], remember: Remember
    ) -> None:
        """0A000: Spark SQL does not tell the field ids of the columns."""
        del changes, remember
        raise _fixed_columns(ident)

    # -- branches ---------------------------------------------------------------------------------

    def create_branch(self, ident: LakeIdent, branch: str, at: int | None = None) -> None:
        """CREATE OR REPLACE BRANCH with a maximum age."""
        what = f'creating a branch of lake table "{ident}"'
        self._sessions.get().commit(statements.create_branch(ident, branch, at), what)

    def drop_branch(self, ident: LakeIdent, branch: str) -> None:
        """DROP BRANCH IF EXISTS."""
        what = f'dropping branches of lake table "{ident}"'
        self._sessions.get().commit(statements.drop_branch(ident, branch), what)

    def check_branch(self, ident: LakeIdent, branch: str) -> None:
        """Raise 40001 if the branch exists and has no maximum age."""
        rows = self._sessions.get().query(
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

    def fast_forward(self, ident: LakeIdent, branch: str, stamp: Stamp | None = None) -> int | None:
        """Move ``main`` to the branch, after ``check_branch``."""
        del stamp
        self.check_branch(ident, branch)
        sql = call("fast_forward", ident, branch=MAIN, to=branch)
        answer = self._sessions.get().commit(sql, f'publishing to lake table "{ident}"')
        return None if answer is None else answer.column("updated_ref")[0].as_py()

    def held(self, ident: LakeIdent, branch: str) -> int | None:
        """None: every commit is on its branch."""
        del ident, branch
        return None

    def fast_forward_with(
        self,
        ident: LakeIdent,
        branch: str,
        changes: Sequence[ColumnChange],
        remember: Remember | None = None,
    ) -> int:
        """0A000, as ``change_columns``."""
        del branch, changes, remember
        raise _fixed_columns(ident)

    def fast_forward_together(
        self, parts: Sequence[Publication], in_parallel: InParallel
    ) -> list[int]:
        """0A000: Spark has no statement for several tables."""
        del parts, in_parallel
        raise no_call_for_several()

    def set_main(self, ident: LakeIdent, snapshot_id: int) -> None:
        """Set ``main`` to a snapshot of the table."""
        self._sessions.get().command(
            call("set_current_snapshot", ident, snapshot_id=exp.Literal.number(snapshot_id)),
            f'setting lake table "{ident}" back',
        )

    # -- commits without rows, and maintenance ----------------------------------------------------

    def commit_empty(
        self,
        ident: LakeIdent,
        ref: str,
        summary: Mapping[str, str],
        columns: Sequence[LakeColumn] | None = None,
    ) -> None:
        """Append no rows, with the snapshot properties of ``summary``."""
        columns = self.columns(ident) if columns is None else columns
        session = self._sessions.get()
        no_rows = session.local(pa.table({"c0": pa.nulls(0, pa.int32())})).select(
            *(F.lit(None).cast(spark_ddl_or_void(c.type)).alias(c.name) for c in columns)
        )
        target = name_of(branch_path(ident, ref))
        session.append(no_rows, target, write_options(summary), f'stamping lake table "{ident}"')

    def expire_snapshots(
        self,
        ident: LakeIdent,
        *,
        older_than: float,
        retain_last: int,
        list_files: ListFiles | None = None,
    ) -> None:
        """Drop old snapshots with their files; Spark runs a job for that."""
        del list_files
        session = self._sessions.get()
        session.set_properties({})
        session.command(
            call(
                "expire_snapshots",
                ident,
                older_than=exp.Var(this=_moment(older_than)),
                retain_last=exp.Literal.number(retain_last),
                max_concurrent_deletes=exp.Literal.number(2),
            ),
            f'expiring snapshots of lake table "{ident}"',
        )

    def remove_files(
        self, ident: LakeIdent, files: Sequence[str], table_uuid: str | None = None
    ) -> int:
        """Remove no file: Spark SQL has no statement that does."""
        del ident, files, table_uuid
        return 0

    def expire_named(
        self, ident: LakeIdent, snapshot_ids: Sequence[int], list_files: ListFiles | None = None
    ) -> None:
        """Drop exactly these snapshots, with the files; Spark runs a job for that.

        The procedure's own age limit would drop more: no snapshot is older than 1970.
        """
        del list_files
        session = self._sessions.get()
        session.set_properties({})
        ids = [exp.Literal.number(snapshot_id) for snapshot_id in snapshot_ids]
        session.command(
            call(
                "expire_snapshots",
                ident,
                older_than=exp.Var(this=_moment(0.0)),
                snapshot_ids=exp.Anonymous(this="array", expressions=ids),
                max_concurrent_deletes=exp.Literal.number(2),
            ),
            f'expiring snapshots of lake table "{ident}"',
        )

    def close(self) -> None:
        """Close no session: the sessions belong to the caller."""


def _moment(unix_time: float) -> str:
    return f"TIMESTAMP '{datetime.fromtimestamp(unix_time, UTC).isoformat(' ', 'microseconds')}'"


def _fixed_columns(ident: LakeIdent) -> FeatureNotSupported:
    return FeatureNotSupported(
        f'the columns of lake table "{ident}" can be changed only by the embedded lake server',
        hint="Change them with ALTER TABLE in pgsub sql.",
    )
