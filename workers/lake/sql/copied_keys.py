"""Copied rows with a key that an existing row has: count the keys, or overwrite existing rows.

A copy is a single append to a branch. So the copied rows are the rows that Iceberg reads between
the branch's tip and the tip's parent, and the existing rows are the table as of the parent.
Counting reads only the columns of the key, in a single Spark job for any number of rows and ranges.

Trace, with ``overwrite``: the table has rows 1 and 2 in file A, the copy brought 2 and 3 in file
B. Row 2 is in both. A MERGE by position gives row 2 in file A the copied values, so columns that
only the lake has keep their values, and deletes row 2 in file B. The table has 1, 2 as copied, 3.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

from pyspark.sql.connect import functions as F  # noqa: N812 - its usual name
from pyspark.sql.connect.plan import SQL

from catalog.errcodes import InternalError
from workers.lake.connect.session import LakeSession
from workers.lake.effects import ExistingKeys
from workers.lake.metadata.snapshots import OPERATION
from workers.lake.segment import Generated
from workers.lake.sql.generated_values import numbered, renamed, used_beside, with_generated
from workers.lake.sql.merge import DELETE, FILE, POSITION, UPDATE, merge_by_position
from workers.lake.sql.statements import name_of, sql_text, table_path
from workers.lake.sql.table_metadata import read_history
from workers.lake.table import LakeIdent

_EXISTING: Final = "b"
"""Begins the names of an existing row's key columns, as in a MERGE's source."""
_COPIED: Final = "k"


def count_existing_keys(
    session: LakeSession, ident: LakeIdent, branch: str, key: Sequence[str]
) -> ExistingKeys:
    """See ``Destination.existing_keys``."""
    existing, copied = _existing_and_copied(session, ident, branch, key)
    keys = [F.col(name) for name in numbered(_COPIED, key)]
    shared = existing.join(copied, _equal(key)).agg(
        F.count_distinct(*keys).alias("copied"), F.count("*").alias("existing")
    )
    what = f'looking for copied keys in lake table "{ident}"'
    found = session.query("SELECT copied, existing FROM s", what, s=shared).to_pylist()[0]
    return ExistingKeys(found["copied"], found["existing"])


def overwrite_existing_rows(
    session: LakeSession,
    ident: LakeIdent,
    branch: str,
    columns: Sequence[str],
    key: Sequence[str],
    generated: Generated,
) -> None:
    """See ``Destination.overwrite_existing``."""
    own = used_beside(columns, generated)
    existing, copied = _existing_and_copied(session, ident, branch, key, columns, own)
    values = [F.col(name) for name in numbered("c", columns)]
    beside = numbered("o", own)
    updates = existing.join(copied, _equal(key)).select(
        F.col("existing_file").alias("f"),
        F.col("existing_pos").alias("p"),
        _op(UPDATE),
        *values,
        *map(F.col, beside),
    )
    deletes = copied.join(existing, _equal(key), "left_semi").select(
        F.col("copied_file").alias("f"),
        F.col("copied_pos").alias("p"),
        _op(DELETE),
        *values,
        *(F.lit(None).alias(name) for name in beside),
    )
    session.set_properties({OPERATION: uuid.uuid4().hex})  # marks a commit of pgsub
    session.command(
        merge_by_position(
            ident,
            branch,
            columns=columns,
            deletes=True,
            updates=True,
            generated=[name for name, _ in generated],
        ),
        f'overwriting rows of lake table "{ident}"',
        s=with_generated(updates.union(deletes), columns, own, generated),
    )


def _existing_and_copied(
    session: LakeSession,
    ident: LakeIdent,
    branch: str,
    key: Sequence[str],
    columns: Sequence[str] = (),
    own: Sequence[str] = (),
) -> tuple[Any, Any]:
    """Rows from before the branch's last commit, and rows of the commit.

    ``own`` are further columns of the existing rows.
    """
    tip = read_history(session, ident).tip(branch)
    if tip is None or tip.parent_id is None:
        raise InternalError(f'branch "{branch}" of lake table "{ident}" holds no copy')
    whole = sql_text("SELECT * FROM", table_path(ident), f"VERSION AS OF {tip.parent_id}")
    existing = session.frame(SQL(whole)).select(
        *renamed(key, _EXISTING), *renamed(own, "o"), *_position("existing")
    )
    appended = (
        session.spark.read.option("start-snapshot-id", str(tip.parent_id))
        .option("end-snapshot-id", str(tip.snapshot_id))
        .table(name_of(table_path(ident)))
    )
    copied = appended.select(*renamed(key, _COPIED), *renamed(columns, "c"), *_position("copied"))
    return existing, copied


def _position(whose: str) -> list[Any]:
    return [F.col(FILE).alias(f"{whose}_file"), F.col(POSITION).alias(f"{whose}_pos")]


def _equal(key: Sequence[str]) -> Any:
    pairs = zip(numbered(_EXISTING, key), numbered(_COPIED, key), strict=True)
    return reduce(lambda one, other: one & other, (F.col(h) == F.col(c) for h, c in pairs))


def _op(value: int) -> Any:
    return F.lit(value).cast("tinyint").alias("op")
