"""Compare the rules for columns with the rules of the rows in the lake. Pure.

A changed rule of the configuration has the table copied again (``pgsub up``). But a catalog may be
made anew from another file (``pgsub rebuild``), and the key of a mask is in no file at all. Rows of
both rules would then stand in one column: equal values with two hashes, or hashes beside hidden
values. So a worker compares before the first row. With the columns the worker remembers the columns
left out, and the kind of each hash (``workers.changes.remembered_columns``). Without numbers of
columns the worker remembers the hashes alone (``masks_text``).

A trace. ``ssn`` is left out, and ``mail`` is hashed under a key::

    key of before          the rows go on
    another key            error: mail was masked with another key
    no rule for mail       error: mail has another rule
    no rule for ssn        error: ssn has another rule
    mail, exclude          error: mail has another rule

No error of this module is answered by a new copy: the copy could bring hidden values to the lake. A
user has the table copied again under the new rules.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from catalog.errcodes import ColumnsChanged
from catalog.pg_subscription import TableOptions
from workers.changes.cannot_follow import CannotFollow
from workers.changes.masked_columns import told_masks
from workers.changes.remembered_columns import RememberedColumns, forgotten
from workers.publisher.table_shape import ShapeColumn


def masks_text(options: TableOptions, epoch: str | None) -> str | None:
    """The text to remember without numbers of columns; None without masks."""
    told = told_masks(options)
    return forgotten(epoch or "", told).as_text() if told else None


def check_same_rules(
    table: str, names: Collection[str], before: RememberedColumns, options: TableOptions
) -> None:
    """Raise 55000 if rows would be hidden in another way than the rows in the lake.

    ``names`` are the columns of a message, or of a table to be copied.
    """
    now = told_masks(options)
    written = {each.name for each in before.columns}
    hidden = {each.name for each in before.guarded if each.typid}
    hidden |= before.masked.keys() & (names if before.is_forgotten else written)
    for name in names:
        if name in now:
            if before.masked.get(name) != now[name]:
                raise _another_mask(table, name)
        elif name in (written if name in options.left_out else hidden):
            raise _another_rule(table, name)


def under_rules(
    before: RememberedColumns, found: Sequence[ShapeColumn], options: TableOptions
) -> RememberedColumns:
    """``before`` without masks of no rule; ``found`` are the columns of a message.

    Raises ``CannotFollow`` if a column got another name since, and rows have another rule.
    """
    known = {each.attnum: each.name for each in before.columns}
    hidden = {each.attnum: each.name for each in before.guarded if each.typid}
    hidden |= {attnum: name for attnum, name in known.items() if name in before.masked}
    for each in found:
        was = known.get(each.attnum, each.name)
        if each.name not in options.hashed and each.attnum in hidden:
            raise CannotFollow(
                f'Column "{each.name}" was hidden as column "{hidden[each.attnum]}", and no rule '
                "of the configuration hides it.",
                copies=False,
            )
        if each.name in options.hashed and was != each.name:
            raise CannotFollow(
                f'Column "{was}" was renamed to "{each.name}", which the configuration masks: the '
                "values in the rows that are there are not masked."
            )
    masked = {name: told for name, told in before.masked.items() if name in options.hashed}
    return replace(before, masked=masked)


def _another_mask(table: str, name: str) -> ColumnsChanged:
    return _as_it_is(
        ColumnsChanged(
            f'column "{name}" of table "{table}" was masked with another key, or not masked',
            detail="Equal values would have different hashes in the lake.",
            hint="Give the launcher the key of before, or copy the table again with pgsub refresh "
            "NAME --recopy TABLE.",
        )
    )


def _another_rule(table: str, name: str) -> ColumnsChanged:
    return _as_it_is(
        ColumnsChanged(
            f'column "{name}" of table "{table}" has another rule than the rows in the lake',
            detail="Values would stand beside what hides the values of other rows.",
            hint="Write the rule of before in the file, and run pgsub up FILE; or copy the table "
            "again with pgsub refresh NAME --recopy TABLE.",
        )
    )


def _as_it_is(error: ColumnsChanged) -> ColumnsChanged:
    """The error, to which no new copy is the answer."""
    error.copies = False
    return error
