"""Keeping a table small to read and its metadata short, without losing its position.

Each batch leaves files of its own, and what a MERGE costs grows with their number: in a table of
some thousand rows a batch took 0.3 s at first and 3.5 s after thirty. So the small files are
written together now and then, on the branch, between two batches: the next one is published with
it. Files of some size stay as they are.

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

_SMALL_FILE: Final = 1 << 20
"""Bytes below which a data file is written together with others: what a busy table leaves in each
batch is larger, and to write all of that again took as long as three batches."""
_COMPACTED_FILE: Final = 64 << 20
_MIN_FILES: Final = 8
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


def compact(session: LakeSession, ident: LakeIdent, branch: str) -> int:
    """Write the branch's small data files together, without the rows deleted from them.

    Leaves a snapshot without a stamp on the branch, or none. Returns how many files went.
    """
    options = {
        "min-input-files": _MIN_FILES,
        "min-file-size-bytes": _SMALL_FILE,
        "target-file-size-bytes": _COMPACTED_FILE,
        "max-file-size-bytes": 2**62,  # nothing is split
    }
    listed = ", ".join(f"'{key}', '{value}'" for key, value in options.items())
    session.set_properties({})
    found = session.call(
        call("rewrite_data_files", ident, branch=branch, options=exp.Var(this=f"map({listed})")),
        f'compacting lake table "{ident}"',
    )
    return int(found.column("rewritten_data_files_count")[0].as_py()) if found else 0
