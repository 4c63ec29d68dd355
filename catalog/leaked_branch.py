"""Branches of pgsub that may stay on a lake table after the table left its subscription."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from catalog.sqlite_file import CatalogFile


@dataclass(frozen=True, slots=True)
class LeakedBranch:
    """A lake table whose branches of a subscription could not be dropped, and the reason.

    ``subuuid`` owned the table, or was a source of the shared table. ``since`` is the last time at
    which the table left, in microseconds since 1970.
    """

    lake_schema: str
    lake_table: str
    subuuid: str
    subname: str
    since: int
    reason: str


class LeakedBranches(CatalogFile):
    """The list. A row outlives the subscription, and goes when the branches are gone."""

    def put_leaked_branch(self, leak: LeakedBranch) -> None:
        """List a table, or store another reason of a listed table."""
        self._write("put_leaked_branch", asdict(leak))

    def leaked_branches(self) -> list[LeakedBranch]:
        """The tables on which branches may stay."""
        return self._all("leaked_branches", lambda row: LeakedBranch(**dict(row)))

    def forget_leaked_branch(self, leak: LeakedBranch) -> None:
        """Take a table off the list, unless the table has left again since ``leak`` was read."""
        self._write("forget_leaked_branch", asdict(leak))
