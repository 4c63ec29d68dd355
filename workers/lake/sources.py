"""The sources of a shared lake table."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

import pyarrow as pa

from catalog.errcodes import ReplicationError
from catalog.namespace import qualified_name
from catalog.pg_subscription import Subscription, TableOptions
from catalog.pg_subscription_rel import SubscriptionRel
from workers.lake.table import BRANCH_PREFIX, SHARED, SOURCE_COLUMN, LakeColumn, LakeIdent


def source_of(sub: Subscription, rel: SubscriptionRel) -> str:
    """The table's name as a source; empty if its lake table is its own."""
    name = qualified_name(rel.nspname, rel.relname)
    return f"{sub.subuuid}:{name}" if sub.tables.get(name, TableOptions()).shared else ""


def owner_of(sub: Subscription, rel: SubscriptionRel) -> str:
    """Whom the lake table of one of the subscription's tables belongs to."""
    return SHARED if source_of(sub, rel) else sub.subuuid


def branches_of(sub: Subscription, relid: int = 0) -> str:
    """How the branches of one worker begin; ``relid`` is a sync worker's table.

    An oid would not do: another data directory gives it to another subscription.
    """
    return f"{BRANCH_PREFIX}{sub.subuuid.replace('-', '')}_{relid}_"


def delete_rows(sub: Subscription, rel: SubscriptionRel) -> str:
    """The command, for a shell, that deletes what a source has in its shared lake table.

    Those of a table that leaves stay there, as a table of its own would.
    """
    from workers.lake.sql.statements import delete_source  # with a parser that few commands need
    from workers.lake.table import MAIN

    ident = LakeIdent(rel.lake_schema, rel.lake_table)
    return f"pgsub sql {shlex.quote(delete_source(ident, MAIN, source_of(sub, rel)))}"


def with_source_column(columns: Iterable[LakeColumn]) -> tuple[LakeColumn, ...]:
    """A shared lake table's columns, from those of the source that makes it."""
    return (*columns, LakeColumn(SOURCE_COLUMN, pa.string()))


def check_source_column(table: str, published: Sequence[str]) -> None:
    """The publisher must not send what says where a row came from (42701)."""
    if SOURCE_COLUMN in published:
        raise source_column_taken(table)


def source_column_taken(table: str) -> ReplicationError:
    """The finding of ``check_source_column``."""
    return ReplicationError(
        f'column "{SOURCE_COLUMN}" of table "{table}" is in the way',
        detail="In a shared lake table the column of this name says which source a row came from.",
        hint="Rename the column on the publisher, leave it out with a column list in the "
        "publication, or out of generated in the configuration, or map the table to a lake table "
        "of its own.",
        sqlstate="42701",
    )
