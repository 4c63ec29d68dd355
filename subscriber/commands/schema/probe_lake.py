"""Probe the lake before CREATE makes anything, while what a copy needs starts.

Spark's first Python takes a moment to start, a second if it cannot be forked, and the probe of a
catalog takes about as long. A table that is copied by a single task needs no Python.

Trace: table ``a`` has 200 MB, and ``copy_range_bytes`` is 64 MB. Spark's Python starts, the probe
passes, the slot is made. The first task of the copy finds Spark's Python running.
"""

from __future__ import annotations

from collections.abc import Sequence

from config.subscription import SubOpts
from subscriber.commands.context import CommandContext
from subscriber.commands.table_mapping import MappedTable
from workers.publisher.interfaces import ReplicationConn
from workers.publisher.table_shape import fetch_largest


def probe_before_copy(
    conn: ReplicationConn,
    mapped: Sequence[MappedTable],
    options: SubOpts,
    context: CommandContext,
) -> str | None:
    """Probe the lake as ``CommandContext.probe_lake`` does, before the tables are copied, if so."""

    def is_any_large() -> bool:
        size = fetch_largest(conn, [each.whole.relid for each in mapped])
        return size > context.settings.copy_range_bytes

    if options.copy_data and options.enabled:
        context.expect_copy(is_any_large)
    return context.probe_lake()
