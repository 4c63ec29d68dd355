"""The error of a key that a table has already."""

from __future__ import annotations

from collections.abc import Sequence

from catalog.errcodes import UniqueViolation
from catalog.pg_stat_subscription_stats import ConflictType
from workers.lake.table import LakeIdent


class KeyConflict(UniqueViolation):
    """A change gives a row a key, or several keys, of another row.

    If not ``certain``, the key may be a part of the replica identity, and rows may share the part.
    """

    def __init__(
        self,
        conflict: ConflictType,
        ident: LakeIdent,
        key: Sequence[str],
        *more: Sequence[str],
        overwritable: bool = True,
        certain: bool = True,
    ) -> None:
        if more:
            conflict = ConflictType.MULTIPLE_UNIQUE_CONFLICTS
        said = [
            f'Key ({", ".join(each)}) already exists in lake table "{ident}".'
            for each in (key, *more)
        ]
        hint = "Remove what stands in the way from the lake table."
        if not certain:
            said.append(
                "Whether that was the whole replica identity is not known: the publisher has "
                "another replica identity by now, or the table is gone."
            )
            hint = (
                "Have the table copied again with pgsub refresh --recopy; if it is gone from the "
                "publisher, remove that row."
            )
        elif overwritable:
            hint = "Remove that row, or declare on_key_conflict: overwrite."
        super().__init__(
            f'conflict detected on relation "{ident}": conflict={conflict}',
            detail="\n".join(said),
            hint=hint,
        )
        self.conflict = conflict
