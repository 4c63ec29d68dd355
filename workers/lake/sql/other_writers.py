"""Find out who changed a row of a lake table last: pgsub, or another writer.

With ``track_commit_timestamp``, PostgreSQL knows the origin of the transaction that changed a row
last. A row of an Iceberg table of format 3 has a lineage: the sequence number of the last commit
that changed the row. Compaction keeps the number. Every commit of pgsub with rows has a mark in the
summary. So a commit without a mark is another writer's, unless the commit only moved rows.

Snapshots expire, and the marks with the snapshots. So a property of the table keeps the sequence
numbers of other writers' commits. A worker looks for new commits whenever a branch was created:
after another commit to ``main`` the worker needs a new branch anyway. For an adopted table the
property keeps all numbers up to the adoption. A table without other writers costs a batch nothing.

Trace: pgsub appends rows 1 and 2 (commit 7), another writer updates row 2 (commit 8). The next
publication is refused, and the worker creates a new branch: 8 has no mark, so the property keeps 8.
The batch is written again. The UPDATE of 1 and 2 matches a row of commit 8: update_origin_differs
is 1, and both rows are updated.
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
"""The first table format with a lineage of rows."""
OTHERS: Final = "pgsub.others"

_SEQUENCE: Final = "_last_updated_sequence_number"
_ADDED: Final = 1
_ROWS: Final = 0
_HIGHEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class OtherWriters:
    """Sequence numbers of other writers' commits to a table.

    ``all_up_to``: all numbers up to and including this number; ``sequences``: further numbers.
    ``snapshots`` are existing snapshots that the worker has looked at already, in memory only.
    """

    all_up_to: int = 0
    sequences: frozenset[int] = frozenset()
    snapshots: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.all_up_to or self.sequences)

    def within(self, kept: OtherWriters) -> bool:
        """Does ``kept`` have all of these numbers?"""
        return all(number <= kept.all_up_to for number in self.sequences - kept.sequences)

    def property(self) -> dict[str, str]:
        """The table property with the numbers: ``..7,12,15``."""
        return {OTHERS: ",".join([f"..{self.all_up_to}", *map(str, sorted(self.sequences))])}


NO_OTHER_WRITERS: Final = OtherWriters()


def look_for_others(
    session: LakeSession, ident: LakeIdent, known: OtherWriters | None
) -> OtherWriters:
    """The commits of other writers to the table. Two calls, and two more for new commits.

    ``known`` is the previous answer, None at first. The table's property wins over ``known``: the
    table may have been adopted since, or created again. A table without lineage gets a warning in
    the log, the first time.
    """
    properties = read_properties(session, ident)
    if not _has_lineage(properties):
        if known is None:
            _warn_of_format(ident)
        return NO_OTHER_WRITERS
    kept = _remembered(properties)
    # Another worker of a shared table may have replaced the property: then look at all snapshots.
    looked_at = known.snapshots if known is not None and known.within(kept) else frozenset()
    try:
        snapshots, there = _looked(session, ident, looked_at)
    except ConnectionFailure:
        raise
    except ReplicationError as error:
        # A manifest of an old snapshot may be missing: rows matter more than the origin of rows.
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
    """All snapshots that may be other writers', and the sequence numbers of the new snapshots.

    A missing manifest means that an expiry ran meanwhile: the second try reads the rest.
    """
    with suppress(FileMissing):
        snapshots = _snapshots(session, ident)
        return snapshots, _sequences(session, ident, snapshots - looked_at)
    snapshots = _snapshots(session, ident)
    return snapshots, _sequences(session, ident, snapshots - looked_at)


def all_others(session: LakeSession, ident: LakeIdent) -> dict[str, str]:
    """The property of an adopted table: all rows of the table are another writer's.

    Empty for a table without lineage, or without rows.
    """
    if not _has_lineage(read_properties(session, ident)):
        return {}
    sql = sql_text("SELECT max(sequence_number) FROM", table_path(ident, "entries"))
    newest = session.query(sql, _remembering(ident)).column(0)[0].as_py()
    return {} if newest is None else OtherWriters(newest).property()


def count_rows_of_others(
    ident: LakeIdent, branch: str, on: Sequence[exp.Expression], others: OtherWriters
) -> str:
    """The number ``n`` of rows, by ``op``, that a MERGE matches and another writer changed last.

    ``on`` is the condition of the MERGE.
    """
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
    return NO_OTHER_WRITERS  # a property of another form: a person changed the property


def _remembering(ident: LakeIdent) -> str:
    return f'remembering other writers of lake table "{ident}"'


def _snapshots(session: LakeSession, ident: LakeIdent) -> frozenset[int]:
    """Snapshots without a mark of pgsub that may have brought rows."""
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
    """The sequence numbers of the snapshots that brought rows. Only manifests have the numbers."""
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


def _warn_of_format(ident: LakeIdent) -> None:
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
