"""Move ``main`` of tables to branches: what may move where, and one call for several tables.

A REST catalog may offer ``POST /v1/{prefix}/transactions/commit``. The call names for each table
what must still be true (the table's uuid, the snapshot of ``main``) and the change (``main`` is at
the branch's last snapshot). The catalog makes all changes or none, and readers see all changes at
once.

The answer of the call names no snapshot, and an answer may be lost or wrong: a status of 5xx says
nothing, and a refusal may be that of a request that a proxy sent twice. So the tables are looked at
before the call and again behind every answer, "yes" included, until ``main`` of every table is at
the branch. The first look is at the state that the commit to the branch has brought, if known::

    look   a: main 4, branch 5   b: main 7, branch 8
    call   a: 4 → 5, b: 7 → 8    503, and the catalog did the work
    look   a: main 5, branch 5   b: main 8, branch 8    published

Rows are right also with a catalog that breaks its word and moves a part of the tables: the next
call names only tables whose ``main`` has not moved.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JJavaError

from catalog.errcodes import FeatureNotSupported, ReplicationError
from config.limits import COMMIT_ATTEMPTS
from workers.lake.api.java_api import JavaApi
from workers.lake.column_changes import ColumnChange, Remember
from workers.lake.connect.errors import LakeFailure, is_commit_conflict
from workers.lake.metadata.changed_schema import changed_schema
from workers.lake.metadata.snapshots import PUBLISHER_COLUMNS, tip_to_publish
from workers.lake.metadata.table_schema import columns_of_schema, current_schema
from workers.lake.publication import Publication
from workers.lake.refusals import changed_meanwhile, main_was_moved, no_call_for_several
from workers.lake.table import LakeColumn, LakeIdent, Stamp

ONE_CALL: Final = "V1_COMMIT_TRANSACTION"
"""The endpoint, as Iceberg's class ``Endpoint`` calls it."""

_REFUSED: Final = re.compile(
    r"(?:java\.lang|org\.apache\.iceberg\.exceptions)\."
    r"(?:(?P<name>(?:UnsupportedOperation|IllegalArgument|NoSuch\w+|BadRequest|Forbidden)Exception)\b"
    r"|RESTException: Unable to process \(code: (?P<status>4(?!01|08|09|19|25|29)\d\d),)"
)
"""Answers of 501 and 4xx: the catalog did not even try. Left out are an ended token (401, 419), a
conflict (409), and calls too slow, too early or too often (408, 425, 429).
"""


@dataclass(frozen=True, slots=True)
class Seen:
    """A table as of one look: the snapshot that ``main`` is at, or is to be at after ``change``.

    ``change`` is the table's part of the call; None if ``main`` need not move. ``may_be_old``: the
    change adds a snapshot on a state that nobody has read for this look.
    """

    ident: LakeIdent
    snapshot_id: int
    change: Any | None
    may_be_old: bool = False


def tip_of(ident: LakeIdent, metadata: Mapping[str, Any], branch: str) -> int:
    """The snapshot that ``main`` moves to with the branch; 40001 if ``main`` may not move."""
    tip = tip_to_publish(metadata, branch)
    if tip is not None:
        return tip
    if "max-ref-age-ms" in metadata.get("refs", {}).get(branch, {}):
        raise main_was_moved(ident, "Another commit is on main.")
    raise changed_meanwhile(ident)  # the branch is gone, or was made anew


def fast_forward(
    api: JavaApi,
    ident: LakeIdent,
    branch: str,
    changes: Sequence[ColumnChange],
    remember: Remember | None,
) -> int:
    """Read the table, move ``main`` to the branch, and change columns; the snapshot of ``main``."""
    operations = api.load(ident).operations()
    base = operations.current()
    metadata = api.as_json(base)
    tip = tip_of(ident, metadata, branch)
    schema = changed_schema(metadata, changes)
    properties = {}
    if remember is not None:
        properties[PUBLISHER_COLUMNS] = remember(known_columns(ident, schema))
    if schema != current_schema(metadata):
        api.replace_columns(operations, base, schema, properties, publishes=tip)
    elif tip != metadata.get("current-snapshot-id"):
        api.move_main(operations, base, tip)
    return tip


def replace_columns(
    api: JavaApi, ident: LakeIdent, changes: Sequence[ColumnChange], remember: Remember
) -> None:
    """Change the columns and the text in the table's properties, unless both are so already."""
    operations = api.load(ident).operations()
    base = operations.current()
    metadata = api.as_json(base)
    schema = changed_schema(metadata, changes)
    text = remember(known_columns(ident, schema))
    same = metadata.get("properties", {}).get(PUBLISHER_COLUMNS) == text
    if not same or schema != current_schema(metadata):
        api.replace_columns(operations, base, schema, {PUBLISHER_COLUMNS: text})


def known_columns(ident: LakeIdent, schema: Mapping[str, Any]) -> tuple[LakeColumn, ...]:
    """The columns of a schema; 0A000 if only Spark knows a type."""
    columns = columns_of_schema(schema)
    if columns is None:
        raise FeatureNotSupported(
            f'lake table "{ident}" has a column of a type that only Spark knows'
        )
    return columns


def look(api: JavaApi, table: Any, part: Publication) -> Seen:
    """Look at a loaded table, and prepare the change that moves ``main`` to the branch."""
    base = table.operations().current()
    metadata = api.as_json(base)
    tip = tip_of(part.ident, metadata, part.branch)
    is_there = tip == metadata.get("current-snapshot-id")
    return Seen(part.ident, tip, None if is_there else api.change_of_main(part.ident, base, tip))


def look_at_known(api: JavaApi, table: Any, part: Publication) -> Seen | None:
    """``look`` at the state of the commit to the branch; None if the state does not suffice.

    The call requires ``main`` to be where the state has it.
    """
    base = table.operations().current()
    tip = tip_of_known(api, base, part.branch, part.stamp)
    return None if tip is None else Seen(part.ident, tip, api.change_of_main(part.ident, base, tip))


def tip_of_known(api: JavaApi, base: Any, branch: str, stamp: Stamp) -> int | None:
    """The snapshot for ``main`` by the state ``base``; None: read the table.

    In the state the branch has to end with the position ``stamp``, and ``main`` to be elsewhere.
    """
    metadata = api.as_json(base)
    tip = tip_to_publish(metadata, branch, stamp)
    return None if tip == metadata.get("current-snapshot-id") else tip


def move_all(
    look_at_all: Callable[[], Sequence[Seen]], call: Callable[[Sequence[Any]], None]
) -> list[int]:
    """Look, call, and look again, until ``main`` of every table is at the branch.

    0A000 if the catalog refuses calls for several tables. The tables may have moved nevertheless,
    by an earlier call with a lost answer.
    """
    failure: ReplicationError | None = None
    for attempt in range(COMMIT_ATTEMPTS + 1):
        seen = look_at_all()
        behind = [each for each in seen if each.change is not None]
        if not behind:
            return [each.snapshot_id for each in seen]
        if attempt == COMMIT_ATTEMPTS:
            break
        failure = _called(call, behind)
    if failure is not None:
        raise failure
    raise main_was_moved(behind[0].ident, "The catalog said that main was moved, and main was not.")


def _called(
    call: Callable[[Sequence[Any]], None], behind: Sequence[Seen]
) -> ReplicationError | None:
    """Call; the error after which the tables say whether the call took effect.

    A catalog may refuse a change of an old state as a wrong request.
    """
    try:
        call([each.change for each in behind])
    except FeatureNotSupported as refusal:
        if not any(each.may_be_old for each in behind):
            raise
        return refusal
    except LakeFailure as error:
        if not is_commit_conflict(error):
            raise
        return error
    return None


def commit_together(api: JavaApi, changes: Sequence[Any]) -> None:
    """Make the changes by one call. 0A000 if the catalog refuses calls for several tables.

    The exception's class tells. The message does not count: a conflict may quote a refusal.
    """
    try:
        api.commit_together(changes)
    except Py4JJavaError as error:
        thrown: Any = error.java_exception
        answer = refusal_in(str(thrown.toString()))
        if answer is None:
            raise
        raise no_call_for_several(f"The catalog answered with {answer}.") from None


def refusal_in(thrown: str) -> str | None:
    """Class or status if a Java exception, as text, is a refusal of calls for several tables."""
    found = _REFUSED.match(thrown)
    if found is None:
        return None
    return found["name"] or f"status {found['status']}"
