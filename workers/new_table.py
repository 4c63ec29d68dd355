"""What a lake table is made with, by whichever process makes it."""

from __future__ import annotations

from catalog.pg_subscription import TableOptions
from workers.lake.counts import LakeIdent
from workers.lake.destination import Destination, LakeColumn
from workers.publication import RemoteTable
from workers.shared_targets import with_source_column


def new_columns(
    remote: RemoteTable, options: TableOptions, ident: LakeIdent, dest: Destination
) -> tuple[LakeColumn, ...]:
    """The published columns, what is generated, and in a shared table the source.

    What is generated may be over the source, too.
    """
    columns = remote.lake_columns(as_text=options.on_unrepresentable == "text")
    known = with_source_column(columns) if options.shared else columns
    columns = (*columns, *dest.generated_columns(ident, known, options.generated))
    return with_source_column(columns) if options.shared else columns
