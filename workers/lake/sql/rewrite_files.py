"""Compaction and vacuum through Spark: fewer files to read, without losing the table's position.

Every batch adds files, and the cost of a MERGE grows with the number of files: in a table of some
thousand rows a batch took 0.3 s at first and 3.5 s after thirty batches. So compaction merges small
files now and then, on the branch, between two batches; the next batch publishes the result. Larger
files stay unchanged until a share of the rows is deleted. In format 2 every MERGE reads the deletes
of the files with matched rows and writes the deletes again: the tenth of twelve batches of 100,000
random updates in 3 M rows took twice as long as the sixth. Vacuum rewrites such files, no more at
a time than the worker can spare between two batches.

Merged files leave delete files that apply to no data file any more. Iceberg drops delete files
older than every data file, but only in manifests that a commit has to read anyway: 14 of 30 stayed
in each turn, 900 after half an hour of small updates. A DELETE with a condition that no row can
meet makes Iceberg read all manifests of the branch, without reading a row. In a table of format 3
the deletes of a file are a single vector, and go with the file. If pgsub wrote the delete files
(``merge_delete_files``), the delete files of a data file become a single file, and a commit drops
idle delete files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from sqlglot import exp

from config.limits import IDLE_DELETE_FILES
from workers.lake.connect.session import LakeSession
from workers.lake.effects import FileSizes
from workers.lake.sql.statements import (
    branch_path,
    call,
    identifier,
    name_of,
    sql_text,
    table_path,
    text,
)
from workers.lake.table import LakeColumn, LakeIdent


def compact(
    session: LakeSession,
    ident: LakeIdent,
    branch: str,
    columns: Sequence[LakeColumn],
    sizes: FileSizes,
    deleted_share: float | None = None,
    merge_deletes: Callable[[], bool] = lambda: False,
) -> int:
    """Merge the branch's small data files, without deleted rows. Returns the replaced files.

    With ``deleted_share`` instead rewrite files with at least that share of deleted rows, as many
    as ``sizes`` allows. The files of a busy table's batches should not count as small: to write all
    of them again took as long as three batches.
    ``merge_deletes`` merges the delete files, and answers False if it cannot.
    The new snapshots on the branch carry no stamp.
    """
    options: dict[str, float] = {
        "target-file-size-bytes": sizes.whole,
        "max-file-size-bytes": 2**62,  # no file is split
    }
    if deleted_share is None:
        options |= {
            "min-file-size-bytes": sizes.bar,
            "min-input-files": sizes.few,
            "delete-ratio-threshold": 1,
        }
    else:
        options |= {
            "min-file-size-bytes": 0,
            "min-input-files": 2**31 - 1,
            "delete-ratio-threshold": min(max(deleted_share, 0.01), 1),
            "max-files-to-rewrite": max(1, sizes.at_once // _usual_size(session, ident)),
        }
        merge_deletes()  # Spark chooses files by delete files that belong to a single data file
    listed = ", ".join(f"'{key}', '{value}'" for key, value in options.items())
    session.set_properties({})
    found = session.call(
        call("rewrite_data_files", ident, branch=branch, options=exp.Var(this=f"map({listed})")),
        f'compacting lake table "{ident}"',
    )
    files = int(found.column("rewritten_data_files_count")[0].as_py()) if found else 0
    if files and _idle_deletes(session, ident, branch) > IDLE_DELETE_FILES and not merge_deletes():
        _drop_dangling_deletes(session, ident, branch, columns)
    return files


def _usual_size(session: LakeSession, ident: LakeIdent) -> int:
    """The size of a file in bytes, averaged over the table's bytes.

    A few large files among many small files count by their share of the table's bytes.
    """
    sql = sql_text(
        "SELECT CAST(sum(1D * file_size_in_bytes * file_size_in_bytes)"
        " / sum(file_size_in_bytes) AS BIGINT) AS n FROM",
        table_path(ident, "data_files"),
    )
    found = session.query(sql, f'looking at the files of lake table "{ident}"')
    return max(1, int(found.column(0)[0].as_py() or 0))


def _drop_dangling_deletes(
    session: LakeSession, ident: LakeIdent, branch: str, columns: Sequence[LakeColumn]
) -> None:
    never = next((words for each in columns if (words := _never(each))), None)
    if never is None:
        return
    session.command(
        sql_text("DELETE FROM", branch_path(ident, branch), "WHERE", never),
        f'dropping old deletes of lake table "{ident}"',
    )


def _never(column: LakeColumn) -> str | None:
    """A condition on the column that no value meets, though Spark cannot tell.

    Two parts that exclude each other: in a partition by truncate(10, id) Iceberg rounds the least
    value down, past the end to the greatest value, and takes ``id < least`` for true in every file.
    """
    name = name_of(identifier(column.name))
    if pa.types.is_int32(column.type):
        return f"{name} < {-(2**31) + 1} AND {name} > {2**31 - 2}"
    if pa.types.is_int64(column.type):
        return f"{name} < {-(2**63) + 1} AND {name} > {2**63 - 2}"
    if pa.types.is_string(column.type):
        return f"{name} < ''"
    if pa.types.is_date32(column.type):
        return f"{name} < DATE '0001-01-01' AND {name} > DATE '9999-12-31'"
    return None


def _idle_deletes(session: LakeSession, ident: LakeIdent, branch: str) -> int:
    """The number of delete files beyond one per data file, on the branch."""
    counts = " - ".join(
        f"coalesce(CAST(s.summary['total-{kind}-files'] AS INT), 0)" for kind in ("delete", "data")
    )
    sql = sql_text(
        f"SELECT {counts} AS n FROM",
        table_path(ident, "snapshots"),
        "AS s JOIN",
        table_path(ident, "refs"),
        "AS r ON s.snapshot_id = r.snapshot_id WHERE r.name =",
        text(branch),
    )
    found = session.query(sql, f'counting the files of lake table "{ident}"')
    return int(found.column(0)[0].as_py()) if found.num_rows else 0
