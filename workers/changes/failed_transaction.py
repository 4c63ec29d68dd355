"""The transaction and the change that an error belongs to.

A batch is cut before the transaction at fault (``workers.apply.apply_batch``), so every error of a
row names the transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from catalog.errcodes import (
    NULL_VALUE_NOT_ALLOWED,
    NumericValueOutOfRange,
    ObjectNotInPrerequisiteState,
    ReplicationError,
)
from catalog.pg_subscription_rel import SubscriptionRel
from workers.changes.layout import LaidOutRun
from workers.columnar.column_reader import (
    Changes,
    NullKey,
    UnreadableValue,
    UnrepresentableValue,
    UnsentValue,
)
from workers.columnar.tuples import DELETE, INSERT, UPDATE
from workers.lake.table import LakeTable
from workers.proto.messages import Relation

_WHOLE_OLD_ROW: Final = ord("O")
_MESSAGE_TYPES: Final = {int(INSERT): "INSERT", int(UPDATE): "UPDATE", int(DELETE): "DELETE"}


@dataclass(frozen=True, slots=True)
class FailedChange:
    """The change that an error is about, with the publisher's names; for CONTEXT."""

    message_type: str
    nspname: str
    relname: str
    column: str | None = None

    def words(self) -> list[str]:
        """The place of the change, as PostgreSQL's context has it."""
        words = [
            f'during message type "{self.message_type}"',
            f'for replication target relation "{self.nspname}.{self.relname}"',
        ]
        return words if self.column is None else [*words, f'column "{self.column}"']


class FailedTransaction(Exception):  # noqa: N818 (the name says the fault)
    """Transaction ``txn`` (an index into the batch) is at fault for ``error``.

    ``change`` is the change that failed, if the change is known.
    """

    def __init__(
        self, txn: int, error: ReplicationError, change: FailedChange | None = None
    ) -> None:
        super().__init__(str(error))
        self.txn = txn
        self.error = error
        self.change = change

    def blame(self, *tables: SubscriptionRel) -> None:
        """Blame the error on ``tables``, unless the tables at fault are known."""
        self.error.tables = self.error.tables or tables


def failed_at(
    relation: Relation,
    changes: Changes,
    change: int,
    error: ReplicationError,
    column: str | None = None,
) -> FailedTransaction:
    """Blame ``error`` on the transaction of change number ``change``."""
    failed = FailedChange(
        _MESSAGE_TYPES[int(changes.kind[change])], relation.nspname, relation.relname, column
    )
    return FailedTransaction(int(changes.txn[change]), error, failed)


def value_error(
    error: UnrepresentableValue | UnreadableValue, run: LaidOutRun, table: LakeTable
) -> FailedTransaction:
    """Blame an unreadable or unstorable value on the transaction, with a hint for the user."""
    if isinstance(error, UnreadableValue):
        return failed_at(run.relation, run.changes, error.change, error)
    if isinstance(error, UnsentValue):
        cause = ReplicationError(
            f'column "{error.column}" of lake table "{table.ident}" has no value: the publisher '
            "did not send it",
            detail="An UPDATE brought the row into the publication's row filter, and a large "
            "value that did not change is not sent then.",
            hint="Set REPLICA IDENTITY FULL for the table on the publisher; or declare "
            "on_unrepresentable: null for it, which stores NULL, as PostgreSQL does.",
            sqlstate=NULL_VALUE_NOT_ALLOWED,
        )
    else:
        cause = NumericValueOutOfRange(
            f'column "{error.column}" of lake table "{table.ident}" cannot hold a value '
            "the publisher sent",
            detail=f"The column's type in the lake is {error.type}.",
            hint="Declare on_unrepresentable: null for the table, clamp for dates and timestamps, "
            "or text before it is copied; or correct the value on the publisher.",
        )
    column = run.published_name(error.column)
    return failed_at(run.relation, run.changes, error.change, cause, column)


def null_key(error: NullKey, run: LaidOutRun) -> FailedTransaction:
    """Blame a NULL in the key on the transaction.

    A whole old row ("O") of a keyed run belongs to a partitioned table under REPLICA IDENTITY FULL.
    A NULL in the key shows a partition that logs other columns, or did when the row was changed.
    """
    whole = int(run.changes.old_kind[error.change]) == _WHOLE_OLD_ROW
    cause = no_whole_rows(run.relation) if whole else error
    return failed_at(run.relation, run.changes, error.change, cause)


def no_whole_rows(relation: Relation) -> ObjectNotInPrerequisiteState:
    """The error for a partitioned table under FULL whose partitions do not show which row it is."""
    name = f"{relation.nspname}.{relation.relname}"
    return ObjectNotInPrerequisiteState(
        f'partitions of "{name}" do not log whole rows',
        detail="The partitioned table is under REPLICA IDENTITY FULL, a partition is not, and "
        "either the partitioned table has had no primary key since it was copied, or the "
        "partition's replica identity lacks a column of the primary key.",
        hint="On the publisher, ALTER TABLE ... REPLICA IDENTITY FULL for each partition, or give "
        f'"{name}" a primary key and each partition REPLICA IDENTITY DEFAULT; then pgsub refresh '
        f"NAME --recopy {name} copies the table again.",
    )
