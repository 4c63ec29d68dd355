"""Who changed a row of a lake table last: this project, or somebody else.

PostgreSQL asks a row's commit for its origin, where ``track_commit_timestamp`` is on. A row of an
Iceberg table of format 3 has a lineage: the sequence number of the commit that changed it last,
which stays with it when files are written together. Each of our commits that brings rows bears a
mark in its summary, so a commit without one is somebody else's, unless it only moved rows.

Snapshots expire, and with them what says whose a commit was. So the sequence numbers of the
others' commits are kept in a property of the table, and looked for among the snapshots whenever
a branch was made: a worker needs a new one when ``main`` turned out to be elsewhere. Of a table
that is adopted, all numbers up to then are kept. While there are no others a batch has nothing to
look for.

Trace: we append rows 1 and 2 (commit 7), somebody updates row 2 (commit 8). Our next publication
is refused, a new branch is made: 8 has no mark, it is remembered. The batch is written anew, its
UPDATE of 1 and 2 meets one row of commit 8: one update_origin_differs, and both rows are updated.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from sqlglot import exp

from catalog.errcodes import ConnectionFailure, ReplicationError
from config.limits import OTHER_WRITERS_COMMITS
from workers.lake.connect.errors import FileMissing
from workers.lake.connect.session import LakeSession
from workers.lake.metadata.snapshots import MARKS
from workers.lake.sql.merge import SOURCE, TARGET, source_column, target_column
from workers.lake.sql.statements import (
    FORMAT_VERSION,
    branch_path,
    set_properties,
    sql_text,
    table_path,
    text,
)
from workers.lake.sql.table_metadata import read_properties
from workers.lake.table import LakeIdent

log = logging.getLogger(__name__)

SINCE: Final = 3
"""The table format whose rows have a lineage."""
OTHERS: Final = "pgsub.others"

_SEQUENCE: Final = "_last_updated_sequence_number"
_ADDED: Final = 1
_ROWS: Final = 0
_HIGHEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class OtherWriters:
    """Sequence numbers of somebody else's commits to a table: all up to one, and these.

    ``snapshots`` are those that are kept and were looked at; only a worker's memory has them.
    """

    all_up_to: int = 0
    sequences: frozenset[int] = frozenset()
    snapshots: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.all_up_to or self.sequences)

    def within(self, kept: OtherWriters) -> bool:
        """Whether all that is known here is kept."""
        return all(number <= kept.all_up_to for number in self.sequences - kept.sequences)

    def property(self) -> dict[str, str]:
        """What the table remembers of them: ``..7,12,15``."""
        return {OTHERS: ",".join([f"..{self.all_up_to}", *map(str, sorted(self.sequences))])}


NO_OTHER_WRITERS: Final = OtherWriters()


def look_for_others(
    session: LakeSession, ident: LakeIdent, known: OtherWriters | None
) -> OtherWriters:
    """What somebody else committed to the table; two calls, two more where that is news.

    ``known`` is what this found before, None at first. What is remembered of the table counts, not
    that: it may have been adopted since, or made again. A table whose rows have no lineage is told
    of, the first time.
    """
    properties = read_properties(session, ident)
    if not _has_lineage(properties):
        if known is None:
            _tell_of_format(ident)
        return NO_OTHER_WRITERS
    kept = _remembered(properties)
    # Another worker of a shared table may have stored its list over ours: then all are looked at.
    looked_at = known.snapshots if known is not None and known.within(kept) else frozenset()
    try:
        snapshots, there = _looked(session, ident, looked_at)
    except ConnectionFailure:
        raise
    except ReplicationError as error:
        # A manifest that only old snapshots need may be gone: rows matter more than who wrote them.
        log.warning("action=no_row_origin sqlstate=%s %s", error.code, error.primary)
        return OtherWriters(kept.all_up_to, kept.sequences, looked_at)
    sequences = kept.sequences | {number for number in there if number > kept.all_up_to}
    found = OtherWriters(
        kept.all_up_to, frozenset(sorted(sequences)[-OTHER_WRITERS_COMMITS:]), snapshots
    )
    if found.sequences != kept.sequences:
        session.command(set_properties(ident, found.property()), _remembering(ident))
    return found


def _looked(
    session: LakeSession, ident: LakeIdent, looked_at: frozenset[int]
) -> tuple[frozenset[int], frozenset[int]]:
    """The snapshots there are, and the sequence numbers of those that were not ``looked_at``.

    Once more where a manifest is gone: an expiry went on beside.
    """
    with suppress(FileMissing):
        snapshots = _snapshots(session, ident)
        return snapshots, _sequences(session, ident, snapshots - looked_at)
    snapshots = _snapshots(session, ident)
    return snapshots, _sequences(session, ident, snapshots - looked_at)


def all_others(session: LakeSession, ident: LakeIdent) -> dict[str, str]:
    """The property of a table that is adopted: whatever it holds is somebody else's.

    Nothing where its rows have no lineage, or it has none.
    """
    if not _has_lineage(read_properties(session, ident)):
        return {}
    sql = sql_text("SELECT max(sequence_number) FROM", table_path(ident, "entries"))
    newest = session.query(sql, _remembering(ident)).column(0)[0].as_py()
    return {} if newest is None else OtherWriters(newest).property()


def count_rows_of_others(
    ident: LakeIdent, branch: str, on: Sequence[exp.Expression], others: OtherWriters
) -> str:
    """How many rows (``n``) that others changed last a MERGE on this condition meets, by ``op``."""
    lineage = target_column(_SEQUENCE)
    until = exp.LTE(this=lineage, expression=exp.Literal.number(others.all_up_to))
    listed = [exp.Literal.number(number) for number in sorted(others.sequences)]
    theirs = exp.Paren(
        this=exp.or_(until, *([exp.In(this=lineage.copy(), expressions=listed)] if listed else []))
    )
    return sql_text(
        "SELECT",
        source_column("op"),
        "AS op, count(*) AS n FROM",
        branch_path(ident, branch),
        f"AS {TARGET} JOIN {SOURCE} ON",
        exp.and_(*on, theirs),
        "GROUP BY",
        source_column("op"),
    )


def _has_lineage(properties: Mapping[str, str]) -> bool:
    return int(properties.get(FORMAT_VERSION, "1")) >= SINCE


def _remembered(properties: Mapping[str, str]) -> OtherWriters:
    all_up_to, *numbers = properties.get(OTHERS, "..0").split(",")
    with suppress(ValueError):
        kept = OtherWriters(int(all_up_to.removeprefix("..")), frozenset(map(int, numbers)))
        if all(0 <= number <= _HIGHEST for number in (kept.all_up_to, *kept.sequences)):
            return kept
    return NO_OTHER_WRITERS  # somebody changed it


def _remembering(ident: LakeIdent) -> str:
    return f'remembering other writers of lake table "{ident}"'


def _snapshots(session: LakeSession, ident: LakeIdent) -> frozenset[int]:
    """Those without a mark of ours that may hold rows of somebody else."""
    marks = [f"summary[{text(key).sql(dialect='spark')}] IS NULL" for key in MARKS]
    sql = sql_text(
        "SELECT snapshot_id FROM",
        table_path(ident, "snapshots"),
        f"WHERE operation NOT IN ('replace', 'delete') AND {' AND '.join(marks)}",
    )
    rows = session.query(sql, f'looking for other writers of lake table "{ident}"')
    found: list[Any] = rows.column(0).to_pylist()
    return frozenset(found)


def _sequences(session: LakeSession, ident: LakeIdent, snapshots: frozenset[int]) -> frozenset[int]:
    """The numbers of those of their commits that brought rows, which are in the manifests only."""
    if not snapshots:
        return frozenset()
    listed = ", ".join(str(snapshot) for snapshot in sorted(snapshots))
    sql = sql_text(
        "SELECT DISTINCT sequence_number FROM",
        table_path(ident, "all_entries"),
        f"WHERE status = {_ADDED} AND data_file.content = {_ROWS} AND snapshot_id IN ({listed})",
    )
    rows = session.query(sql, f'looking for rows of other writers in lake table "{ident}"')
    found: list[Any] = rows.column(0).drop_null().to_pylist()
    return frozenset(found)


def _tell_of_format(ident: LakeIdent) -> None:
    log.warning(
        'action=no_row_origin sqlstate=55000 who wrote a row of lake table "%s" is not known',
        ident,
        extra={
            "DETAIL": "track_commit_timestamp is on, and the table has an Iceberg format older "
            f"than {SINCE}.",
            "HINT": "Where readers know the format: ALTER TABLE ... SET TBLPROPERTIES "
            f"('{FORMAT_VERSION}' = '{SINCE}') in pgsub sql.",
        },
    )
