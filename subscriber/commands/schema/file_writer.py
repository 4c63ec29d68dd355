"""Findings about tables whose rows the configuration wants written as files, without Spark.

Where a worker cannot write the files of a table, ``writer: files`` is an error. Most reasons are
known before the first row: the lake's server, the store, the table's properties, columns that the
lake computes. The scratch table of the catalog's probe stands for new tables. A worker asks again
whenever the worker opens a table, because the owner of a table may change the table later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from catalog.errcodes import ReplicationError
from catalog.pg_subscription import TableOptions
from subscriber.commands.context import CommandContext
from subscriber.commands.table_mapping import MappedTable
from workers.lake.writer_choice import FILES, computed_column, no_files


def writer_findings(
    mapped: Sequence[MappedTable], no_new_files: str | None, context: CommandContext
) -> Iterator[ReplicationError]:
    """0A000 for each table that cannot have the writer it is given.

    ``no_new_files`` is why workers cannot write the files of new tables; None if they can.
    """
    wanted = [table for table in mapped if (table.options.writer or context.lake_writer) == FILES]
    if not wanted:
        return
    found = context.lake_tables([table.ident for table in wanted])
    for table, existing in zip(wanted, found, strict=True):
        reason = computed_column(table.options)
        if existing is None:
            reason = reason or no_new_files or _special(table.options)
        if reason is not None:
            yield no_files(table.ident, reason)
        elif existing is not None:
            try:
                context.lake().choose_writer(table.ident, FILES)
            except ReplicationError as error:
                yield error


def _special(options: TableOptions) -> str | None:
    from workers.lake.files.table_layout import only_spark, special_property  # most need no arrays

    found = special_property(dict(options.properties))
    return None if found is None else only_spark(found)
