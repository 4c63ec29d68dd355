"""Take over settings and subscriptions that changed while the worker runs, or end the worker."""

from __future__ import annotations

import logging
from typing import Final

from catalog.pg_subscription import SubCreate, Subscription
from catalog.store_sqlite import CatalogStore
from workers.process.worker_exit import WorkerExit
from workers.process.worker_process import LAKE_WRITER, WorkerProcess
from workers.stream.start import Stream

log = logging.getLogger(__name__)

_RESTART_ON: Final = (
    "subconninfo",
    "subname",
    "subslotname",
    "subbinary",
    "substream",
    "subpasswordrequired",
    "suborigin",
    "subowner",
    "subpublications",
    "passfile",
    "password_env",
    "password_command",
    "password_command_ttl",
    "tables",
)
"""Catalog columns: a change of the value needs a new connection or a new START_REPLICATION."""


_RESTART_ON_SETTING: Final = (
    "ddl_capture",
    "lake_commit_workers",
    "local_relation_rows",
    "track_commit_timestamp",
    "is_superuser",
    LAKE_WRITER,
)
"""Settings that are read when the lake's threads, staging, tables and the connection are made."""


def reload_settings(process: WorkerProcess, stream: Stream) -> bool:
    """Take over changed settings from here on; has any setting changed?

    An apply worker cannot change some settings (``_RESTART_ON_SETTING``) during a run, and raises
    ``WorkerExit``. A sync worker keeps the old values: a new start would copy the table again.
    """
    changed = process.process_config_file()
    if not changed:
        return False
    log.info(
        "action=reload subid=%d relid=%d settings changed: %s",
        process.subid,
        process.relid,
        ", ".join(changed),
    )
    fixed = [name for name in changed if name in _RESTART_ON_SETTING]
    if fixed and not process.relid:
        raise WorkerExit(f"it starts again with another {' and '.join(fixed)}")
    stream.reload(process.settings)
    return True


def reread_subscription(
    store: CatalogStore, old: Subscription, table: tuple[str, str] | None = None
) -> Subscription:
    """Read the subscription again; ``WorkerExit`` if the worker cannot go on.

    With ``table``, the schema and name of a sync worker's table, other tables may change: the name
    of another table that is followed must not cost a finished copy.
    """
    new = store.subscription(old.oid)
    if new is None or new.subcreate != SubCreate.READY:
        raise WorkerExit(f'subscription "{old.subname}" was removed')
    if not new.subenabled:
        raise WorkerExit(f'subscription "{old.subname}" was disabled')
    changed = [name for name in _RESTART_ON if getattr(old, name) != getattr(new, name)]
    if table is not None and old.table_options(*table) == new.table_options(*table):
        changed = [name for name in changed if name != "tables"]
    if changed:
        raise WorkerExit(f'subscription "{old.subname}" has changed: {", ".join(changed)}')
    return new
