"""A lake table's name, and what a batch did to the table."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, order=True)
class LakeIdent:
    """A lake table ``lake.<schema>.<table>``; both names verbatim, never quoted here."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True)
class Counts:
    """What a batch did to a table.

    ``*_missing`` count updates and deletes that found no row; ``*_origin_differs`` those that met
    one which somebody else changed last, where that is known. ``rows`` is how many the table's
    files hold then, ``dead`` how many of them are deleted; both 0 where nothing was merged.
    """

    appended: int = 0
    merged: int = 0
    update_missing: int = 0
    delete_missing: int = 0
    update_origin_differs: int = 0
    delete_origin_differs: int = 0
    rows: int = field(default=0, compare=False)
    dead: int = field(default=0, compare=False)


def added(one: Counts, other: Counts) -> Counts:
    """What both did; the table is as the ``other`` left it, if that says."""
    last = other if other.rows else one
    return Counts(
        one.appended + other.appended,
        one.merged + other.merged,
        one.update_missing + other.update_missing,
        one.delete_missing + other.delete_missing,
        one.update_origin_differs + other.update_origin_differs,
        one.delete_origin_differs + other.delete_origin_differs,
        last.rows,
        last.dead,
    )


@dataclass(frozen=True, slots=True)
class Merge:
    """A MERGE of ``rows`` changes, ``updates`` of them no deletes; ``operation`` names its commit.

    ``key`` is what rows were matched by; () where it was their place.
    """

    rows: int
    updates: int
    key: tuple[str, ...] = ()
    operation: str = ""


@dataclass(frozen=True, slots=True)
class Effect:
    """What was put on a branch: ``counts`` without what the ``merges`` did, which is to be read."""

    ident: LakeIdent
    branch: str
    counts: Counts
    merges: tuple[Merge, ...] = ()
