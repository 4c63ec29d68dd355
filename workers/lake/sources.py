"""The sources of a shared lake table."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from catalog.errcodes import DUPLICATE_COLUMN, ReplicationError
from catalog.namespace import qualified_name
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubscriptionRel
from workers.lake.table import BRANCH_PREFIX, SHARED, SOURCE_COLUMN, LakeColumn, LakeIdent


def source_of(sub: Subscription, rel: SubscriptionRel) -> str:
    """The table's name as a source; empty if the lake table is not shared."""
    if not sub.table_options(rel.nspname, rel.relname).shared:
        return ""
    return f"{sub.subuuid}:{qualified_name(rel.nspname, rel.relname)}"


def shared_tables(sub: Subscription, rels: Iterable[SubscriptionRel]) -> set[LakeIdent]:
    """The shared lake tables of a subscription's tables."""
    shared = (rel for rel in rels if source_of(sub, rel))
    return {LakeIdent(rel.lake_schema, rel.lake_table) for rel in shared}


def owner_of(sub: Subscription, rel: SubscriptionRel) -> str:
    """The owner of the lake table of a subscription's table."""
    return SHARED if source_of(sub, rel) else sub.subuuid


def all_branches_of(sub: Subscription) -> str:
    """The prefix of the branches of a subscription's workers.

    Not from the subscription's oid: another data directory gives the oid to another subscription.
    """
    return branches_of_uuid(sub.subuuid)


def branches_of_uuid(subuuid: str) -> str:
    """``all_branches_of`` a subscription of which the uuid is known."""
    return f"{BRANCH_PREFIX}{subuuid.replace('-', '')}_"


def branches_of(sub: Subscription, relid: int = 0) -> str:
    """The prefix of a worker's branches; ``relid`` is a sync worker's table."""
    return f"{all_branches_of(sub)}{relid}_"


def delete_rows(sub: Subscription, rel: SubscriptionRel) -> str:
    """The shell command that deletes a source's rows from a shared lake table.

    A source that leaves a shared table leaves its rows, as a dropped subscription leaves a table.
    """
    from workers.lake.sql.statements import delete_source  # imports a parser; few commands need one
    from workers.lake.table import MAIN

    ident = LakeIdent(rel.lake_schema, rel.lake_table)
    return f"pgsub sql {shlex.quote(delete_source(ident, MAIN, source_of(sub, rel)))}"


def with_source_column(columns: Iterable[LakeColumn]) -> tuple[LakeColumn, ...]:
    """A shared lake table's columns, from the columns of the source that creates the table."""
    import pyarrow as pa  # most commands need no arrays

    return (*columns, LakeColumn(SOURCE_COLUMN, pa.string()))


def check_source_column(table: str, published: Sequence[str]) -> None:
    """42701 if the publisher sends a column with the name of the source column."""
    if SOURCE_COLUMN in published:
        raise source_column_taken(table)


def source_column_taken(table: str) -> ReplicationError:
    """The error of ``check_source_column``."""
    return ReplicationError(
        f'column "{SOURCE_COLUMN}" of table "{table}" is in the way',
        detail="In a shared lake table the column of this name says which source a row came from.",
        hint="Rename the column on the publisher, leave it out with a column list in the "
        "publication, or out of generated in the configuration, or map the table to a lake table "
        "of its own.",
        sqlstate=DUPLICATE_COLUMN,
    )
