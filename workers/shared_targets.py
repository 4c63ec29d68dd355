"""Lake tables that several publisher tables are written to (``shared: true``).

A *source* is one publisher table of one subscription. Its rows bear its name, its position stands
beside those of the others, its branches begin as nobody else's do. What makes that safe is the
fast-forward: it fails for whoever did not begin from what ``main`` shows, so a branch that is
published holds everything that the others have published, and their positions.

The locks here only spare workers of one data directory from failing: they take turns. A lock goes
with the process that has it, so a killed worker holds nobody up.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa

from catalog.errcodes import ReplicationError
from catalog.namespace import qualified_name
from catalog.pg_subscription import Subscription, TableOptions
from catalog.pg_subscription_rel import SubscriptionRel
from workers.lake.counts import LakeIdent
from workers.lake.destination import (
    BRANCH_PREFIX,
    SHARED,
    SOURCE_COLUMN,
    Destination,
    LakeColumn,
    Segment,
    Stamp,
)

MAIN_MOVED: Final = "40001"
ATTEMPTS: Final = 20
"""How often something is done again because another source was first. Each time one of them got
its way, so this many in a row takes others that are busy, and slower steps of our own."""

_DIRECTORY: Final = "locks"


def source_of(sub: Subscription, rel: SubscriptionRel) -> str:
    """The table's name as a source; empty if its lake table is its own."""
    name = qualified_name(rel.nspname, rel.relname)
    return f"{sub.subuuid}:{name}" if sub.tables.get(name, TableOptions()).shared else ""


def owner_of(sub: Subscription, rel: SubscriptionRel) -> str:
    """Whom the lake table of one of the subscription's tables belongs to."""
    return SHARED if source_of(sub, rel) else sub.subuuid


def branches_of(sub: Subscription, relid: int = 0) -> str:
    """How the branches of one worker begin; ``relid`` is a sync worker's table.

    An oid would not do: another data directory gives it to another subscription.
    """
    return f"{BRANCH_PREFIX}{sub.subuuid.replace('-', '')}_{relid}_"


def delete_rows(sub: Subscription, rel: SubscriptionRel) -> str:
    """The command, for a shell, that deletes what a source has in its shared lake table.

    Those of a table that leaves stay there, as a table of its own would.
    """
    from workers.lake.statements import MAIN, delete_source  # with a parser that few commands need

    ident = LakeIdent(rel.lake_schema, rel.lake_table)
    return f"pgsub sql {shlex.quote(delete_source(ident, MAIN, source_of(sub, rel)))}"


def with_source_column(columns: Iterable[LakeColumn]) -> tuple[LakeColumn, ...]:
    """A shared lake table's columns, from those of the source that makes it."""
    return (*columns, LakeColumn(SOURCE_COLUMN, pa.string()))


def check_source_column(table: str, published: Sequence[str]) -> None:
    """The publisher must not send what says where a row came from (42701)."""
    if SOURCE_COLUMN in published:
        raise source_column_taken(table)


def source_column_taken(table: str) -> ReplicationError:
    """The finding of ``check_source_column``."""
    return ReplicationError(
        f'column "{SOURCE_COLUMN}" of table "{table}" is in the way',
        detail="In a shared lake table the column of this name says which source a row came from.",
        hint="Rename the column on the publisher, leave it out with a column list in the "
        "publication, or out of generated in the configuration, or map the table to a lake table "
        "of its own.",
        sqlstate="42701",
    )


class TableLocks:
    """Whose turn it is with the shared tables of a data directory; None: there is nobody else.

    One thread takes and releases. Held tables are taken all at once and in one order, so nobody
    waits for somebody who waits for him.
    """

    def __init__(self, data_dir: Path | None) -> None:
        self._directory = None if data_dir is None else data_dir / _DIRECTORY
        self._held: list[int] = []

    def take(self, idents: Iterable[LakeIdent]) -> None:
        """Wait until all of these tables are ours."""
        wanted = sorted(set(idents))
        if self._directory is None or not wanted:
            return
        self._directory.mkdir(mode=0o700, exist_ok=True)
        try:
            for ident in wanted:
                # By number: a name may be longer than a file's may be, or hold a slash.
                name = hashlib.sha256(repr((ident.schema, ident.table)).encode()).hexdigest()
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                self._held.append(os.open(self._directory / name[:32], flags, 0o600))
                fcntl.flock(self._held[-1], fcntl.LOCK_EX)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Let the others go on; the files stay, for there may be waiters on them."""
        while self._held:
            os.close(self._held.pop())

    @contextmanager
    def held(self, idents: Iterable[LakeIdent]) -> Iterator[None]:
        """As long as the block lasts."""
        self.take(idents)
        try:
            yield
        finally:
            self.release()


def show_copy(
    dest: Destination,
    data_dir: Path,
    ident: LakeIdent,
    branch: str,
    stamp: Stamp,
    new_branch: Callable[[], str],
) -> None:
    """Fast-forward ``main`` to the branch of a copy, whoever else the lake table belongs to."""
    if stamp.source:
        publish_copy(dest, TableLocks(data_dir), ident, branch, stamp, new_branch)
    else:
        dest.publish(ident, branch, stamp)


def publish_copy(
    dest: Destination,
    locks: TableLocks,
    ident: LakeIdent,
    copy: str,
    stamp: Stamp,
    new_branch: Callable[[], str],
) -> None:
    """Show the source's rows on the branch ``copy`` in place of those it has on ``main``.

    The branch as it is, if nobody has published since it was made; else they are written to one
    that begins where ``main`` is now.
    """
    whole = Segment((), truncate=True, source=stamp.source, from_branch=copy)
    with locks.held([ident]):
        branch = copy
        for _ in range(ATTEMPTS):
            if _published(dest, ident, branch, stamp):
                return
            branch = new_branch()
            dest.create_branch(ident, branch)
            dest.write(ident, branch, [whole], stamp)
    raise outrun(ident)


def join(
    dest: Destination, locks: TableLocks, ident: LakeIdent, sub: Subscription, stamp: Stamp
) -> None:
    """Give a source that is not copied its position in a table that is there."""
    prefix = f"{branches_of(sub)}join_{secrets.token_hex(4)}_"
    with locks.held([ident]):
        for attempt in range(ATTEMPTS):
            branch = f"{prefix}{attempt}"
            dest.create_branch(ident, branch)
            dest.write(ident, branch, [], stamp)
            done = _published(dest, ident, branch, stamp)
            dest.drop_branches(ident, prefix=prefix)
            if done:
                return
    raise outrun(ident)


def _published(dest: Destination, ident: LakeIdent, branch: str, stamp: Stamp) -> bool:
    try:
        dest.publish(ident, branch, stamp)
    except ReplicationError as error:
        if error.code != MAIN_MOVED:
            raise
        return False
    return True


def others_beside(ident: LakeIdent, subname: str) -> ReplicationError:
    """A batch was staged for a table of ours alone, and it is not."""
    return ReplicationError(
        f'somebody else added rows to lake table "{ident}" beside a batch',
        hint="Nothing: the worker starts again, and looks for the keys of inserted rows. If "
        f"disable_on_error has disabled it: pgsub enable {shlex.quote(subname)}.",
        sqlstate=MAIN_MOVED,
    )


def outrun(ident: LakeIdent) -> ReplicationError:
    """Every attempt met a ``main`` that another source had moved."""
    return ReplicationError(
        f'main of lake table "{ident}" is moved by other sources faster than one can publish',
        hint="Keep the subscriptions that share the table in one data directory, where they take "
        "turns; or make batches smaller with batch_max_rows.",
        sqlstate=MAIN_MOVED,
    )
