"""Keeping a table's metadata small without losing its position.

The position of a table is in a snapshot's summary; if the last snapshot that carries one expires,
nothing says any more what the table holds. So expiry keeps the newest carrier whatever it is asked
to keep, and runs in the worker that owns the table, between its batches.
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from workers.lake.destination import LakeIdent
from workers.lake.session import LakeSession
from workers.lake.snapshots import read_history
from workers.lake.statements import MAIN, call

_ANY_AGE: Final = "TIMESTAMP '2999-01-01 00:00:00+00:00'"


def expire_snapshots(session: LakeSession, ident: LakeIdent, *, retain: int) -> int:
    """Drop all but the last ``retain`` snapshots of main, and those no ref leads to.

    Keeps as many more as it takes to reach the newest stamped ancestor. Returns the number of
    snapshots that are gone. Branches and tags stay with all they lead to.
    """
    before = read_history(session, ident)
    to_carrier = 0
    for to_carrier, snapshot in enumerate(before.ancestors(MAIN), 1):  # noqa: B007 - counts
        if snapshot.stamp is not None:
            break
    else:
        return 0  # no position anywhere: leave everything for whoever looks into it
    session.set_properties({})
    session.command(
        call(
            "expire_snapshots",
            ident,
            older_than=exp.Var(this=_ANY_AGE),
            retain_last=exp.Literal.number(max(retain, to_carrier, 1)),
            max_concurrent_deletes=exp.Literal.number(2),
        ),
        f'expiring snapshots of lake table "{ident}"',
    )
    return len(before.snapshots) - len(read_history(session, ident).snapshots)
