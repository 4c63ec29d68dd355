"""``refresh: auto``: REFRESH PUBLICATION without a user, if the publication has other tables.

A process of the launcher runs ``main`` for one subscription. One query asks for the published
tables. With the names of the subscription's tables the process ends without a lock, after dropping
the branches that a killed refresh may have left. Else the command runs as for ``pgsub refresh``,
with three differences, because no user watches:

* A missing publication is no refresh. DROP PUBLICATION and CREATE PUBLICATION are two commands, and
  all tables would leave in between.
* Another server, or another database, is no refresh. The worker tells of the gap.
* The copy of a table that returns replaces the rows. REFRESH by hand copies on top, as PostgreSQL
  does, and the rows from before would be in the table twice. An adopted table stays out.

A trace: tables a and b are subscribed::

    published a, b, c     c joins, and is copied
    published a, c        b leaves: row, origin, slot; the lake table stays, the branches do not
    published a, b, c     b joins, and the copy replaces the rows of before
    no publication        nothing, until a publication is made
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from catalog.errcodes import InternalError, ReplicationError
from catalog.pg_subscription import Refresh, Subscription
from catalog.store_sqlite import CatalogStore
from config.load import from_stored
from subscriber.commands.alter_rules import check_refresh
from subscriber.commands.context import CommandContext
from subscriber.commands.lake_branches import drop_lake_branches
from subscriber.commands.open_context import open_command_context
from subscriber.commands.refresh import refresh_publication
from subscriber.commands.subscription_row import must_be_ready
from subscriber.messages import Notice
from workers.process import log as server_log
from workers.publisher.interfaces import ReplicationConn
from workers.publisher.publications import fetch_table_list, missing_publications

log = logging.getLogger(__name__)


def refresh_by_itself(name: str, context: CommandContext) -> bool:
    """Refresh a subscription if the publications have other tables; False without a refresh."""
    sub = must_be_ready(name, context)
    if not sub.subenabled or sub.refresh is not Refresh.AUTO:
        return False
    with closing(context.connect(sub)) as conn:
        if not _has_other_tables(sub, conn, context):
            if any(leak.subuuid == sub.subuuid for leak in context.store.leaked_branches()):
                drop_lake_branches(sub, [], context)
            return False
        check_refresh(sub, None, copy_data=True)
        refresh_publication(sub, conn, context, copy_data=True, replaces=True)
    return True


def _has_other_tables(sub: Subscription, conn: ReplicationConn, context: CommandContext) -> bool:
    identity = conn.identify_system()
    known = {
        (rel.nspname, rel.relname) for rel in context.store.rels(sub.oid) if not rel.holds_messages
    }
    if sub.sysid != identity.systemid or sub.datoid not in (None, identity.datoid):
        return False
    if missing_publications(conn, sub.subpublications):
        return False
    return set(fetch_table_list(conn, sub.subpublications)) != known


def main(argv: Sequence[str]) -> int:
    """Run in the launcher's process: data directory, subscription.

    1 after an error, and if no table joined or left: an adopted table that returns stays out.
    """
    data_dir, name = Path(argv[0]), argv[1]
    server_log.setup("publication look", data_dir)
    try:
        with closing(CatalogStore.open(data_dir, must_exist=True)) as store:
            config = from_stored(store.settings())
            server_log.use_format(config.settings.log_format)
            with open_command_context(data_dir, store, config, notify=_log) as context:
                before = _names(name, context)
                stuck = refresh_by_itself(name, context) and _names(name, context) == before
    except ReplicationError as error:
        log.warning(
            'action=auto_refresh could not refresh subscription "%s": %s',
            *(name, error.primary),
            extra=_fields(error.detail, error.hint),
        )
        return 1
    except Exception as error:
        what = f"unexpected {type(error).__name__} while refreshing a subscription"
        server_log.report(InternalError(what), action="auto_refresh")
        return 1
    return int(stuck)


def _names(name: str, context: CommandContext) -> set[tuple[str, str]]:
    sub = context.store.subscription_by_name(name)
    rels = [] if sub is None else context.store.rels(sub.oid)
    return {(rel.nspname, rel.relname) for rel in rels}


def _log(said: Notice) -> None:
    level = logging.WARNING if said.severity == "WARNING" else logging.INFO
    log.log(level, "action=auto_refresh %s", said.primary, extra=_fields(said.detail, said.hint))


def _fields(detail: str | None, hint: str | None) -> dict[str, str]:
    return {name: text for name, text in (("DETAIL", detail), ("HINT", hint)) if text}
