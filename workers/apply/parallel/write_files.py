"""Write the rows of a piece as data files, in the thread of a transaction in progress.

For each table there are three answers:

- files, with all changes of the table in the piece;
- the rows are *few*: a data file is not worth the while. They wait for the commit as ordinary runs,
  between the files of the pieces before and behind. The next piece may have more. Many deletes
  without a new row have no data file, but their keys are staged as beside files;
- the changes have to *wait*: the old rows are needed, or Spark writes the table. The next piece
  would have the same answer.

Trace, of a table in three pieces::

    D D D D           few       they are applied at the commit
    U U U U U I       files     their keys are looked up behind the deletes
    U U→ U            wait      as is all that comes behind
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from catalog.pg_subscription import TableOptions
from workers.apply.parallel.ready_files import TableFiles, discard, inserts_of, kinds_of
from workers.changes.by_table import Run
from workers.changes.changes_ahead import NoFiles, build_ahead, without_files
from workers.changes.segments import build_segments
from workers.changes.table_work import TableWork
from workers.freed_memory import give_back
from workers.lake.destination import Destination
from workers.process import failpoints
from workers.tables.open_table import OpenTable


@dataclass(frozen=True, slots=True)
class Rows:
    """Changes of a table whose new rows are to be written."""

    run: Run
    table: OpenTable
    options: TableOptions

    @property
    def is_new(self) -> bool:
        """Are all changes inserts?"""
        return inserts_of([self.run]) is not None


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """The files of a piece by relid, and why the tables without files have none."""

    files: Mapping[int, TableFiles] = field(default_factory=dict)
    without: Mapping[int, NoFiles] = field(default_factory=dict)

    @property
    def waiting(self) -> set[int]:
        """The tables whose changes need more than files."""
        return {relid for relid, why in self.without.items() if why is NoFiles.WAIT}


def write_files(rows: Mapping[int, Rows], dest: Destination, file_id: str) -> WrittenFiles:
    """Write the rows of a piece; an error leaves no file."""
    failpoints.reach("apply.files_begun")
    made: dict[int, TableFiles] = {}
    without: dict[int, NoFiles] = {}
    try:
        for relid, each in rows.items():
            written = _write_table(each, dest, file_id)
            if isinstance(written, NoFiles):
                without[relid] = written
            else:
                made[relid] = written
        failpoints.reach("apply.files_written")
    except BaseException:
        discard(made)
        raise
    give_back()
    return WrittenFiles(made, without)


def _write_table(rows: Rows, dest: Destination, file_id: str) -> TableFiles | NoFiles:
    """Write a table's rows."""
    run = rows.run
    if run.relation is None or run.changes is None:
        return NoFiles.WAIT
    work = _build_new(rows, dest, file_id) if rows.is_new else _build_changed(rows, dest, file_id)
    if isinstance(work, NoFiles):
        return work
    work.forget_changes()  # the files wait for the commit, and the records may be all that came
    return TableFiles(work, run.relation, kinds_of(run.changes))


def _build_new(rows: Rows, dest: Destination, file_id: str) -> TableWork | NoFiles:
    work = build_segments(
        [rows.run],
        rows.table.lake,
        rows.options,
        dest,
        look_up_keys=False,
        source=rows.table.source,
        file_id=file_id,
    )
    return work if work.files else without_files(work)


def _build_changed(rows: Rows, dest: Destination, file_id: str) -> TableWork | NoFiles:
    lake, source = rows.table.lake, rows.table.source
    return build_ahead(rows.run, lake, rows.options, dest, source=source, file_id=file_id)
