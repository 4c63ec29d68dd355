"""What a running worker does about settings and a subscription that were changed under it."""

from __future__ import annotations

import logging
from typing import Final

from catalog.pg_subscription import SubCreate, Subscription
from catalog.store_sqlite import CatalogStore
from workers.process.worker_exit import WorkerExit
from workers.process.worker_process import WorkerProcess
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
    "tables",
)
"""A change of one of these needs another connection or another START_REPLICATION."""


_RESTART_ON_SETTING: Final = (
    "lake_commit_workers",
    "local_relation_rows",
    "track_commit_timestamp",
    "is_superuser",
)
"""What the lake's threads, staging and tables are made with, and whose connection it is."""


def reload_settings(process: WorkerProcess, stream: Stream) -> None:
    """Let settings that changed count from here on.

    Raises ``WorkerExit`` in an apply worker for those it cannot change while it runs. A sync worker
    keeps them: starting again would copy its table again.
    """
    changed = process.process_config_file()
    if not changed:
        return
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


def reread_subscription(store: CatalogStore, old: Subscription) -> Subscription:
    """The subscription as it is now; ``WorkerExit`` if a worker of ``old`` is nothing for it."""
    new = store.subscription(old.oid)
    if new is None or new.subcreate != SubCreate.READY:
        raise WorkerExit(f'subscription "{old.subname}" was removed')
    if not new.subenabled:
        raise WorkerExit(f'subscription "{old.subname}" was disabled')
    changed = [name for name in _RESTART_ON if getattr(old, name) != getattr(new, name)]
    if changed:
        raise WorkerExit(f'subscription "{old.subname}" has changed: {", ".join(changed)}')
    return new
