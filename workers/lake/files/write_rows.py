"""Write rows of a table to new data files: one after the other, or one for each partition.

Rows for a commit come from the stream or from a copy, as batches. ``write_rows`` gathers the rows
to row groups and writes the groups. In a partitioned table ``partitioned_files`` gathers the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pyarrow as pa

from workers.lake.files.data_files import as_rows, check_values, row_groups, write_groups
from workers.lake.files.partitioned_files import write_partitions
from workers.lake.files.table_layout import TableLayout
from workers.lake.staged_rows import NewFile
from workers.lake.table import LakeIdent


def write_staged_rows(
    files: TableLayout,
    ident: LakeIdent,
    batches: Iterable[pa.RecordBatch],
    columns: Sequence[str],
    written: Callable[[NewFile], None],
    source: str = "",
    copy_id: str = "",
) -> None:
    """Write staged columns ``c0…`` to new files; see ``as_rows``, ``check_values``."""
    rows = (as_rows(files, batch, columns, source) for batch in batches)
    write_ahead(files, (check_values(ident, batch) for batch in rows), written, copy_id)


def write_ahead(
    files: TableLayout,
    batches: Iterable[pa.RecordBatch],
    written: Callable[[NewFile], None],
    copy_id: str = "",
) -> None:
    """Write rows to new files. A second thread fetches the next rows during the writing."""
    # Close in every case: two threads must never read from the same connection.
    with closing(_ahead(batches)) as ahead:
        # Row groups are gathered in this thread: whole row groups fetched ahead took 60 MB.
        write_rows(files, ahead, written, copy_id)


def _ahead(batches: Iterable[pa.RecordBatch]) -> Generator[pa.RecordBatch]:
    source = iter(batches)
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, source, None)
        while (batch := coming.result()) is not None:
            coming = pool.submit(next, source, None)
            yield batch


def write_rows(
    files: TableLayout,
    batches: Iterable[pa.RecordBatch],
    written: Callable[[NewFile], None],
    copy_id: str = "",
) -> None:
    """Write rows to new files, without a second thread."""
    if files.has_places:
        write_partitions(files, batches, written, copy_id)
    else:
        write_groups(files, row_groups(batches), written, copy_id=copy_id)
