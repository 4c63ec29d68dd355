"""The transaction that ended the last apply worker of a subscription.

The worker found the transaction by cutting a batch again and again. The next worker tries the
transaction alone at once (``workers.apply.known_fault``). The row is a hint: no row changes what is
applied, and a row that is no longer true costs a smaller batch.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from catalog.pg_lsn import LSN
from catalog.rows import decode_lsn, encode_lsn
from catalog.sqlite_file import CatalogFile

_SAYS_NOTHING: Final = frozenset({"max_flush_lsn", "subenabled"})
"""Columns of a subscription whose change cannot take the cause of an error away."""


@dataclass(frozen=True, slots=True)
class TransactionAtFault:
    """``finish_lsn`` is the start of the commit record, as in the error's CONTEXT.

    The table is the publisher's, None if the error named no table.
    """

    subid: int
    finish_lsn: LSN
    sqlstate: str
    nspname: str | None = None
    relname: str | None = None


class TransactionsAtFault(CatalogFile):
    """The stored transactions, at most one for each subscription."""

    def put_transaction_at_fault(self, fault: TransactionAtFault) -> None:
        """Store the transaction instead of the former, if the subscription exists."""
        self._write(
            "put_transaction_at_fault",
            {
                "subid": fault.subid,
                "finish_lsn": encode_lsn(fault.finish_lsn),
                "sqlstate": fault.sqlstate,
                "nspname": fault.nspname,
                "relname": fault.relname,
            },
        )

    def transaction_at_fault(self, subid: int) -> TransactionAtFault | None:
        """The transaction that ended the last apply worker; None after a success or a change."""
        return self._one("transaction_at_fault", _row, subid=subid)

    def forget_transaction_at_fault(self, subid: int) -> None:
        """Forget the transaction: it was applied or skipped, or something changed."""
        self._write("forget_transaction_at_fault", {"subid": subid})

    def forget_all_faults(self) -> None:
        """Forget the transactions of all subscriptions: a setting changed."""
        self._write("forget_transactions_at_fault", {})

    def forget_fault_after(self, subid: int, changed: Collection[str]) -> None:
        """Forget the transaction if the changed columns may take the cause away."""
        if not _SAYS_NOTHING.issuperset(changed):
            self.forget_transaction_at_fault(subid)


def _row(row: sqlite3.Row) -> TransactionAtFault:
    return TransactionAtFault(
        row["subid"],
        decode_lsn(row["finish_lsn"]),
        row["sqlstate"],
        row["nspname"],
        row["relname"],
    )
