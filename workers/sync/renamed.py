"""Follow a table that got another name on the publisher before its copy.

A copy asks for the table by name. The publisher renames nothing under a running copy, because the
copy has the table locked. So the copy meets a new name at its beginning: no table has the name. A
table is known by its oid from CREATE or the refresh on, and goes on under the name that the oid has
now (``workers.tables.rename_watch`` says when).

The sync worker notes the new name and ends. Its successor renames the lake table before it begins
(``workers.tables.rename_tables``). A name that changes while the table catches up is no matter:
changes are found by the oid, and the apply worker follows the name once the table is ready.

A trace: table a, oid 1, is to be copied again, and is renamed to b meanwhile::

    attempt 2    no table a; oid 1 is b: noted; the worker ends
    attempt 3    lake table a is renamed to b; catalog: b; b is copied
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from catalog.errcodes import UNDEFINED_OBJECT, UNDEFINED_TABLE, ReplicationError
from catalog.pg_lsn import LSN
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubscriptionRel
from catalog.store_sqlite import CatalogStore
from workers.process.worker_exit import WorkerExit
from workers.tables.rename_watch import RenameWatch

_NO_SUCH_TABLE: Final = (UNDEFINED_OBJECT, UNDEFINED_TABLE)
"""What the copy says, and what the publisher says of a name that changes before the lock."""


@contextmanager
def following_name(
    watch: RenameWatch, store: CatalogStore, sub: Subscription, rel: SubscriptionRel, lsn: LSN
) -> Iterator[None]:
    """End the worker if the publisher has the table under another name, which is noted.

    ``lsn`` is the position of the copy.
    """
    try:
        yield
    except ReplicationError as error:
        if error.code not in _NO_SUCH_TABLE:
            raise
        renamed = watch.ask(sub, store.rels(sub.oid), [rel])
        said = watch.note(sub, renamed, lsn)
        if not said:
            raise
        raise WorkerExit(f"its lake table is renamed: {said[0]}") from None
