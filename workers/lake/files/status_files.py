"""Status tables written as files of this process, without a Spark job.

Spark would run two jobs for every table, one to read the last digest and one to write a few rows:
a second or more of CPU for a write of all views, which a copy that runs beside would wait for. Here
a view is one small file and one commit.

A server without a gateway, and a table that this process cannot write, stay for Spark
(``workers.lake.sql.status_tables``, where the rules of the tables are). Both leave the same rows,
the same columns and the same digest.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from config.limits import STATUS_SNAPSHOTS
from workers.lake.api import status_commits
from workers.lake.api.gateway import Gateway, gateway_of
from workers.lake.api.java_api import JavaApi
from workers.lake.connect.errors import LakeFailure
from workers.lake.files.data_files import as_rows, row_groups, write_groups
from workers.lake.files.refused_files import is_open
from workers.lake.files.table_layout import read_layout
from workers.lake.metadata.table_location import new_location
from workers.lake.metadata.table_schema import schema_json
from workers.lake.sql import status_tables
from workers.lake.sql.status_tables import DIGEST, PROPERTIES, StatusTable
from workers.lake.staged_rows import NewFile
from workers.lake.storage.store import TableStore
from workers.lake.table import LakeColumn, LakeIdent
from workers.lake.writer_choice import Unwritable


class _NotHereError(Exception):
    """This process cannot write the table's files."""


def write_status_files(url: str, tables: Mapping[str, StatusTable]) -> dict[str, StatusTable]:
    """Bring ``lake.pg_catalog.<name>`` up to date for each table. Returns what is left for Spark.

    Raises 57P01 if the lake server does not answer.
    """
    gateway = gateway_of(url)
    if gateway is None:
        return dict(tables)
    try:
        return {name: table for name, table in tables.items() if not _written(gateway, name, table)}
    finally:
        gateway.close()


def _written(gateway: Gateway, name: str, table: StatusTable) -> bool:
    """Is the table up to date now? After a failure Spark writes the table, or names the reason."""
    ident, what = LakeIdent(status_tables.SCHEMA, name), f'writing "lake.pg_catalog.{name}"'
    paths: list[str] = []
    try:
        with gateway.api(what) as api:
            _bring_up_to_date(api, ident, table, paths)
        return True
    except _NotHereError:
        return False
    except LakeFailure as error:
        if paths and not is_open(error):  # else the disk would become fuller with every write
            with suppress(LakeFailure), gateway.api(what) as api:
                status_commits.remove_refused(api, ident, paths)
        return False


def _bring_up_to_date(api: JavaApi, ident: LakeIdent, table: StatusTable, paths: list[str]) -> None:
    """Write and commit the rows unless the table has them; ``paths`` gets the file's path."""
    found = status_commits.written(api, ident, DIGEST)
    digest, snapshots = (None, 0) if found is None else found
    if digest == table.digest:
        return
    write, summary = partial(_write, table, paths), {DIGEST: table.digest}
    if (digest or "").startswith(f"{table.columns_digest} "):
        status_commits.replace_rows(api, ident, write, summary)
    else:
        columns = [LakeColumn(field.name, field.type) for field in table.rows.schema]
        schema, location = schema_json(columns), new_location(api.warehouse, ident, 0)
        new = status_commits.NewStatusTable(schema, location, PROPERTIES)
        status_commits.replace_table(api, ident, new, write, summary)
    if snapshots + 1 >= status_tables.SNAPSHOTS_AT_MOST:
        status_commits.expire(api, ident, STATUS_SNAPSHOTS)


def _write(
    table: StatusTable, paths: list[str], metadata: Mapping[str, Any], store: TableStore | None
) -> NewFile | None:
    """Write the rows to a file of the table; None without rows. ``paths`` gets its path."""
    files = read_layout(metadata, store)
    if isinstance(files, Unwritable) or files.names != table.rows.column_names:
        raise _NotHereError
    names = [f"c{number}" for number in range(table.rows.num_columns)]
    batches = table.rows.combine_chunks().rename_columns(names).to_batches()
    rows = (as_rows(files, batch, table.rows.column_names) for batch in batches)
    written: list[NewFile] = []
    write_groups(files, row_groups(rows), written.append)
    paths += [file.path for file in written]
    return written[0] if written else None
