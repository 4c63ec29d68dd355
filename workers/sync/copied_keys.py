"""Handle copied rows with a key that the lake table has already.

PostgreSQL's COPY stops at the target's first duplicate key. A sync worker first writes all rows to
the copy's branch, where no reader sees the rows, and then the lake looks up all keys at once. A
duplicate key is an error, and the next attempt drops the branch. With ``on_key_conflict:
overwrite`` the copied row replaces the existing row, like a row that is inserted later.

No key is looked up if the table was empty, or if the copy replaces all rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from catalog.errcodes import UniqueViolation
from catalog.pg_subscription_rel import SubscriptionRel
from workers.lake.destination import Destination
from workers.lake.effects import ExistingKeys
from workers.lake.refusals import key_not_unique
from workers.lake.segment import Generated
from workers.lake.table import LakeIdent

log = logging.getLogger(__name__)


def settle_copied_keys(
    dest: Destination,
    rel: SubscriptionRel,
    branch: str,
    *,
    columns: Sequence[str],
    key: Sequence[str],
    overwrite: bool,
    copy_again: str,
    generated: Generated = (),
) -> None:
    """Make sure that no replica identity has two rows, right after the copy.

    ``columns`` are the copied columns, ``generated`` the computed ones. Raises 23505 for a key that
    exists, or with ``overwrite`` for a key of two rows. ``copy_again`` is the command that replaces
    all rows.
    """
    ident = LakeIdent(rel.lake_schema, rel.lake_table)
    found = dest.existing_keys(ident, branch, key)
    if not found.copied_rows:
        return
    if not overwrite:
        raise _violation(ident, key, found, copy_again)
    if found.existing_rows > found.copied_rows:
        detail = f"{found.copied_rows} copied rows have the keys of {found.existing_rows} rows."
        raise key_not_unique(ident, key, detail, "; the copy is tried again by itself.")
    dest.overwrite_existing(ident, branch, columns, key, generated)
    log.info(
        "action=overwrite subid=%d relid=%d rows=%d table=%s",
        rel.srsubid,
        rel.srrelid,
        found.copied_rows,
        ident,
    )


def check_repeated_keys(
    dest: Destination,
    ident: LakeIdent,
    branch: str,
    keys: Iterable[Sequence[str]],
    source: str,
) -> None:
    """Raise 23505 with every declared key that two rows share, copied rows or existing rows.

    A declared key may be unknown to the publisher. So copied rows are compared with copied rows
    as well.
    """
    counted = [(key, dest.repeated_keys(ident, branch, key, source)) for key in keys]
    said = [
        f"Key ({', '.join(key)}) is there more than once: "
        f"{'one value is' if count == 1 else f'{count} values are'}."
        for key, count in counted
        if count
    ]
    if said:
        raise UniqueViolation(
            f'duplicate key value violates a declared key of lake table "{ident}"',
            detail="\n".join(said),
            hint="Correct the rows of the lake table or of the publisher; the copy is tried again "
            "by itself.",
        )


def _violation(
    ident: LakeIdent, key: Sequence[str], found: ExistingKeys, copy_again: str
) -> UniqueViolation:
    rows = (
        "One copied row has" if found.copied_rows == 1 else f"{found.copied_rows} copied rows have"
    )
    return UniqueViolation(
        f'duplicate key value violates the unique key of lake table "{ident}"',
        detail=f"Key ({', '.join(key)}) already exists: {rows} one that is in the table.",
        hint="Remove those rows from the lake table, or declare on_key_conflict: overwrite; the "
        f"copy is tried again by itself. {copy_again} puts the copy in the place of all rows.",
    )
