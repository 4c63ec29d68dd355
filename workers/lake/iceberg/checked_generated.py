"""The generated columns of a destination's tables: checked once for the same columns."""

from __future__ import annotations

from collections.abc import Sequence

from workers.lake.connect.sessions import Sessions
from workers.lake.iceberg.known_columns import KnownColumns
from workers.lake.segment import Generated
from workers.lake.sql.generated_check import generated_types
from workers.lake.table import LakeColumn, LakeIdent


class CheckedGenerated:
    """Lets Spark check generation expressions; any thread may call."""

    def __init__(self, sessions: Sessions, columns: KnownColumns) -> None:
        self._sessions = sessions
        self._columns = columns
        self._checked: set[tuple[LakeIdent, tuple[LakeColumn, ...], Generated]] = set()

    def types(
        self, ident: LakeIdent, columns: Sequence[LakeColumn], generated: Generated
    ) -> tuple[LakeColumn, ...]:
        """The generated columns over ``columns``, with types; at most one call."""
        if not generated:
            return ()
        names = {name for name, _ in generated}
        others = [column for column in columns if column.name not in names]
        return generated_types(self._sessions.get(), ident, others, generated)

    def check(self, ident: LakeIdent, generated: Generated) -> None:
        """Check expressions before the first use on the table's present columns."""
        if generated:
            columns = self._columns.of(ident)
            if (ident, columns, generated) not in self._checked:
                self.types(ident, columns, generated)
                self._checked.add((ident, columns, generated))
