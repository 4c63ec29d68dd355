"""Keeping a table small to read and its metadata short, without losing its position.

Each batch leaves files of its own, and what a MERGE costs grows with their number: in a table of
some thousand rows a batch took 0.3 s at first and 3.5 s after thirty. So the small files are
written together now and then, on the branch, between two batches: the next one is published with
it. Files of some size stay as they are, until a share of their rows is deleted: in format 2 every
MERGE reads the deletes of the files it meets and writes them again, so that the tenth of twelve
batches of 100,000 random updates in 3 M rows took twice as long as the sixth. Those are
rewritten a few at a time, no more than the worker can spare between two batches.

What is written together leaves files of deletes that apply to nothing any more. Iceberg drops those
that are older than every data file, but only in manifests that a commit has to read anyway: 14 of
30 stayed in each turn, 900 after half an hour of small updates. A DELETE whose condition no row can
meet has it read them all, on the branch, without reading a row. In a table of format 3 the deletes
of a file are one vector, which goes with it. Where the files of deletes are our own
(``delete_files``), those of one data file become one, and a commit drops what is of no file.

The position of a table is in a snapshot's summary; if the last snapshot that carries one expires,
nothing says any more what the table holds. So expiry keeps the newest carrier whatever it is asked
to keep, and all that came since. That is decided before Spark is asked, so batches may go on
beside it: theirs are younger.
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

"""Expires a table's snapshots from before a Unix time, but for so many; and what that is called."""


def compact(
    session: LakeSession,
    ident: LakeIdent,
    branch: str,
    columns: Sequence[LakeColumn],
    sizes: FileSizes,
    dead_share: float | None = None,
    merge_deletes: Callable[[], bool] = lambda: False,
) -> int:
    """Write the branch's small data files together, without the rows deleted from them.

    With ``dead_share`` those instead that hold that share of deleted rows, as many as ``sizes``
    says. What a busy table leaves in a batch should not be small: to write all of that again took
    as long as three batches.
    ``merge_deletes`` writes the files of deletes together, where it does not answer False.
    Leaves snapshots without a stamp on the branch, or none. Returns how many files went.
    """
    options: dict[str, float] = {
        "target-file-size-bytes": sizes.whole,
        "max-file-size-bytes": 2**62,  # nothing is split
    }
    if dead_share is None:
        options |= {
            "min-file-size-bytes": sizes.bar,
            "min-input-files": sizes.few,
            "delete-ratio-threshold": 1,
        }
    else:
        options |= {
            "min-file-size-bytes": 0,
            "min-input-files": 2**31 - 1,
            "delete-ratio-threshold": min(max(dead_share, 0.01), 1),
            "max-files-to-rewrite": max(1, sizes.at_once // _usual_size(session, ident)),
        }
        merge_deletes()  # files are chosen by deletes that are of one file
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
    """Bytes of the file that a byte of the table lies in, on average: few large files among many
    small ones count for what they hold."""
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
    """A condition on the column that is true for no value, and looks to Spark as if it could be.

    Two that exclude each other: under a partition by truncate(10, id) Iceberg rounds the least
    value down, past the end to the greatest, and holds ``id < least`` for true of every file.
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
    """How many files of deletes the branch has more than data files: each of those has one."""
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
