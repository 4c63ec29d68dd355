"""The errors by which a lake table refuses a change."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from catalog.errcodes import (
    RESERVED_NAME,
    SERIALIZATION_FAILURE,
    ColumnsChanged,
    FeatureNotSupported,
    InvalidName,
    ObjectNotInPrerequisiteState,
    ReplicationError,
    SerializationFailure,
    UniqueViolation,
)
from catalog.pg_lsn import LSN
from workers.lake.table import LakeIdent, Stamp

RESERVED_COLUMNS: Final = frozenset(
    {
        "_file",
        "_pos",
        "_partition",
        "_spec_id",
        "_deleted",
        "_last_updated_sequence_number",
        "_row_id",
    }
)
"""Names of Iceberg's metadata columns: a table with such a column cannot be written."""


def reserved_names(
    table: str, names: Sequence[str], hint: Callable[[str], str]
) -> Iterator[InvalidName]:
    """42939 for each column of a publisher's table with a reserved name in the lake."""
    for name in names:
        if name in RESERVED_COLUMNS:
            yield InvalidName(
                f'column name "{name}" of table "{table}" is reserved in the lake',
                detail="Iceberg has a metadata column of this name, and no engine can write a "
                "table with a second one.",
                hint=hint(name),
                sqlstate=RESERVED_NAME,
            )


def element_names(
    table: str, names: Sequence[str], lists: Collection[str], hint: Callable[[str], str]
) -> Iterator[InvalidName]:
    """42939 for each column whose name a new lake table uses inside of a list column.

    Iceberg calls the elements of list column ``tags`` by the full name ``tags.element``, and no two
    fields of a table may have one full name.
    """
    for name in lists:
        element = f"{name}.element"
        if element in names:
            yield InvalidName(
                f'column names "{name}" and "{element}" of table "{table}" exclude '
                "each other in the lake",
                detail=f'Iceberg calls the elements of array column "{name}" "{element}", and no '
                "engine can make the table.",
                hint=hint(element),
                sqlstate=RESERVED_NAME,
            )


def missing_columns(
    ident: LakeIdent, missing: Sequence[str], renamed: tuple[str, str] | None
) -> ColumnsChanged:
    """55000: the lake table lacks published columns.

    ``renamed`` are the old and the new name of a column that the publisher may have renamed.
    """
    hint = (
        "Add to the lake table what is missing with ALTER TABLE ... ADD COLUMN in pgsub sql, map "
        "it to another column with columns: {COLUMN: {to: NAME}} of the table in the "
        "configuration, or leave it out of the publication. In an added column the rows that are "
        "there have NULL: if the publisher's column has a default, copy the table again with "
        "pgsub refresh NAME --recopy TABLE."
    )
    if renamed is not None:
        from workers.lake.sql.statements import rename_column  # imports a parser; an error only

        old, new = renamed
        command = f"pgsub sql {shlex.quote(rename_column(ident, old, new))}"
        hint = (
            f'If the publisher renamed column "{old}" to "{new}", run {command}, which keeps the '
            f'values. If "{new}" is a new column: {hint[0].lower()}{hint[1:]}'
        )
    columns = "column" if len(missing) == 1 else "columns"
    names = ", ".join(f'"{name}"' for name in missing)
    return ColumnsChanged(
        f'logical replication target relation "{ident}" is missing replicated {columns}: {names}',
        hint=hint,
    )


def check_base(ident: LakeIdent, found: Stamp | None, stamp: Stamp, base: LSN | None) -> None:
    """55000 if the branch is behind ``base``; ``found`` is the source's position on the branch.

    See ``Destination.write_branch``.
    """
    if base is None or (found and found.epoch == stamp.epoch and found.lsn >= base):
        return
    stands = "at no position" if found is None else f"at {found.lsn} of epoch {found.epoch}"
    raise ObjectNotInPrerequisiteState(
        f'lake table "{ident}" is behind what was published to it',
        detail=f"It stands {stands} for this source; {base} was published. It was set back.",
        hint="Set the lake table to the snapshot it had, or copy it again from each of its sources "
        "with pgsub refresh NAME --recopy TABLE.",
    )


def check_not_overtaken(ident: LakeIdent, found: LSN, known: LSN) -> None:
    """40001 unless the lake table stands where the worker left it: changes would come twice.

    A second worker of the subscription published a part of the same transactions: its data
    directory is a copy, or came back.
    """
    if found != known:
        # Not SerializationFailure: nobody is at fault for that error, and the worker tries the
        # write again. A second data directory is somebody's fault.
        raise ReplicationError(
            f'another worker of this subscription published to lake table "{ident}"',
            detail=f"The table stood at {known} when its changes were chosen, and stands at "
            f"{found}.",
            hint="The worker starts again from there. If the message comes again, stop the second "
            "data directory of the subscription.",
            sqlstate=SERIALIZATION_FAILURE,
        )


def key_not_unique(
    ident: LakeIdent, key: Sequence[str], detail: str, then: str = ", or copy the table again."
) -> UniqueViolation:
    """23505: rows of the lake table share a key."""
    return UniqueViolation(
        f'key ({", ".join(key)}) is not unique in lake table "{ident}"',
        detail=detail,
        hint=f"Remove the extra rows from the lake table{then}",
    )


def changed_meanwhile(ident: LakeIdent) -> SerializationFailure:
    """40001: the table or the branch is not the one that the files were written for."""
    return SerializationFailure(
        f'could not write to lake table "{ident}": it was changed meanwhile',
        detail="The branch is not as it was, or the table's columns or partitions are not.",
        hint="Nothing is to be done: the batch is written again.",
    )


class FilesRefused(SerializationFailure):
    """The keys of changes with files before the commit cannot be looked up in the table's files.

    The table may stay so: next time, the changes should come without files.
    """


def cannot_look_up(ident: LakeIdent) -> FilesRefused:
    """40001: the table has too many files, or files that only Spark can read."""
    return FilesRefused(
        f'could not look up the keys of changes in the files of lake table "{ident}"',
        detail="The table has too many files, or files that only Spark can read.",
        hint="Nothing is to be done: the transaction is applied without the files that were "
        "written before the commit.",
    )


def main_was_moved(ident: LakeIdent, detail: str) -> SerializationFailure:
    """40001: ``main`` cannot be fast-forwarded, and no row of the batch is visible."""
    return SerializationFailure(
        f'could not publish to lake table "{ident}": main was moved',
        detail=detail,
    )


def no_call_for_several(detail: str | None = None) -> FeatureNotSupported:
    """0A000: the catalog does not move ``main`` of several tables in one call."""
    return FeatureNotSupported(
        "the lake's catalog does not move several tables in one call", detail=detail
    )


def duplicate(ident: LakeIdent, key: tuple[str, ...], detail: str) -> UniqueViolation:
    """23505: the changes matched more rows than expected."""
    if not key:
        return UniqueViolation(
            f'a row of lake table "{ident}" was matched more than once', detail=detail
        )
    return key_not_unique(ident, key, detail)
