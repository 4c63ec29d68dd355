"""A change of columns is not followed, for a reason, and with a remedy.

``workers.changes.schema_change`` finds the reason. The apply worker makes an error of the reason:
the table is copied again or suspended, or the subscription stops. ``pgsub schema`` foretells the
reason.
"""

from __future__ import annotations

from typing import Final

KEEP: Final = (
    "Say on_dropped_column: keep for the table: the lake column stays, and new rows have NULL. Or "
    "drop the lake table and correct partition_by and sort_by"
)
MAKE_ANEW: Final = "Drop the lake table, and correct partition_by and sort_by if need be"


class CannotFollow(Exception):  # noqa: N818 - the caller turns the reason into an error
    """The change, or its meaning for the rows in the lake, is not certain; the reason says why.

    A new copy of the table helps, unless it is not ``copies``: then the configuration, a column
    that only the lake has, or the lake table's layout is in the way. ``remedy`` then says what to
    do first.
    """

    def __init__(self, reason: str, *, copies: bool = True, remedy: str | None = None) -> None:
        super().__init__(reason)
        self.copies = copies
        self.remedy = remedy

    def hint(self, recopy: str) -> str:
        """The hint for a person; ``recopy`` is the command that copies the table again."""
        if self.remedy is not None:
            return f"{self.remedy}: {recopy} makes it anew."
        once = "." if self.copies else ", once the reason is gone."
        return f"{recopy} copies the table again with its present columns{once}"
