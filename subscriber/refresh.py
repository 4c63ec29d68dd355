"""Bringing a subscription in line with its file, and REFRESH PUBLICATION.

``pgsub up`` does this for every subscription that is there already: options that changed are
stored (a running worker notices and starts again where it must), then the publications' tables are
compared with ``pg_subscription_rel``. New ones join in ``i`` (or ``r`` without copy_data), ones
that are not published any more leave; their lake tables stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

from catalog.errcodes import (
    ConnectionFailure,
    FeatureNotSupported,
    ObjectInUse,
    ReplicationError,
)
from catalog.namespace import qualified_name
from catalog.pg_lsn import LSN
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import Subscription
from config.subscription import CreateSubscriptionStmt
from subscriber.passfile import holds, remove_passfile, write_passfile
from subscriber.remoteslot import retry_leaked_slots
from subscriber.report import notice, warning
from subscriber.site import Publisher, Site
from subscriber.subscriptioncmds import (
    check_password_env,
    make_lake_table,
    must_be_ready,
    must_have,
    new_rel,
    new_row,
    published_tables,
    raise_first,
    wait_for_workers,
)
from subscriber.tablemap import MappedTable, lake_findings, lake_ident, privilege_findings
from workers.shared_targets import source_of

_FOLLOWED = (
    "subconninfo",
    "subpublications",
    "substream",
    "subdisableonerr",
    "subpasswordrequired",
    "subrunasowner",
    "subsynccommit",
    "suborigin",
    "sync_slot",
    "password_env",
    "tables",
)
"""Columns that simply take what the file says."""


def bring_in_line(sub: Subscription, stmt: CreateSubscriptionStmt, site: Site) -> Subscription:
    """Make an existing, ready subscription what its file says; the row as it is then.

    0A000 for a change that cannot be made to an existing subscription. Only a warning: a publisher
    that cannot be reached (the workers go on trying, and the next ``up`` refreshes again), and a
    worker that goes by the old row for longer than one waits.
    """
    raise_first(list(refusals(sub, stmt, site)))
    check_password_env(stmt)
    changed = _store_changes(sub, stmt, site)
    try:
        refreshed = stmt.options.connect and _refresh_if_reachable(
            changed, site, copy_data=stmt.options.copy_data
        )
        if refreshed or changed != sub:
            _await_or_warn(changed, site)
    finally:
        if changed.passfile != sub.passfile:
            remove_passfile(sub.passfile)
    return changed


def _await_or_warn(sub: Subscription, site: Site) -> None:
    try:
        await_workers(sub, site)
    except ObjectInUse as error:
        site.notify(warning(error.primary, detail=error.detail, hint=error.hint))


def _store_changes(sub: Subscription, stmt: CreateSubscriptionStmt, site: Site) -> Subscription:
    wanted = new_row(stmt)
    changes: dict[str, Any] = {
        name: getattr(wanted, name)
        for name in _FOLLOWED
        if getattr(wanted, name) != getattr(sub, name)
    }
    if "enabled" in stmt.options.specified and stmt.options.enabled != sub.subenabled:
        changes["subenabled"] = stmt.options.enabled
    password = stmt.connection.password
    if password is None and sub.passfile is not None:
        changes["passfile"] = None
    elif password is not None and not holds(sub.passfile, password):
        changes["passfile"] = write_passfile(site.data_dir, sub.subuuid, password)
    if not changes:
        return sub
    changed = site.store.update_subscription(sub.oid, **changes)
    names = ", ".join(sorted(name.removeprefix("sub") for name in changes))
    site.notify(notice(f'subscription "{sub.subname}" was brought in line: {names}'))
    site.wake_launcher()
    return changed


def _refresh_if_reachable(sub: Subscription, site: Site, *, copy_data: bool) -> bool:
    """Refresh, or warn that it could not be done; whether anything changed."""
    try:
        conn = site.connect(sub)
    except ConnectionFailure as error:
        site.notify(
            warning(
                f'tables of subscription "{sub.subname}" were not refreshed: {error.primary}',
                detail=error.detail,
                hint="The subscription goes on with the tables it has; run up again later.",
            )
        )
        return False
    try:
        changed = _refresh_tables(sub, conn, site, copy_data=copy_data)
        retry_leaked_slots(sub, conn, site)
    finally:
        conn.close()
    return changed


def await_workers(sub: Subscription, site: Site) -> None:
    """Until the workers go by the catalog as it is now, or have ended; 55006 if that is late.

    A batch in flight would otherwise be written to a lake table that has left the subscription,
    and that somebody may have dropped and made again by then.
    """
    if sub.subenabled:
        site.take_effect(sub.oid)
    else:
        wait_for_workers(sub, site)


def refusals(
    sub: Subscription, stmt: CreateSubscriptionStmt, site: Site
) -> Iterator[ReplicationError]:
    """What the file says otherwise and an existing subscription cannot become (0A000 each)."""
    options = stmt.options
    if "failover" in options.specified and options.failover != sub.subfailover:
        yield _fixed(sub, "failover")
    if "slot_name" in options.specified and options.slot_name != sub.subslotname:
        yield _fixed(sub, "slot_name")
    for rel in site.store.rels(sub.oid):
        ident, table = lake_ident(rel.nspname, rel.relname, stmt.tables)
        if table.shared != bool(source_of(sub, rel)):
            yield FeatureNotSupported(
                f'option "shared" of table "{qualified_name(rel.nspname, rel.relname)}" of '
                f'subscription "{sub.subname}" cannot be changed',
                detail="Its rows in the lake would bear the wrong source, or none.",
                hint="Drop the subscription and create it again, with another lake table.",
            )
        if (ident.schema, ident.table) != (rel.lake_schema, rel.lake_table):
            yield FeatureNotSupported(
                f'table "{qualified_name(rel.nspname, rel.relname)}" of subscription '
                f'"{sub.subname}" is written to lake table '
                f'"{qualified_name(rel.lake_schema, rel.lake_table)}" and cannot be mapped anew',
                hint="Drop the subscription and create it again.",
            )


def _fixed(sub: Subscription, option: str) -> FeatureNotSupported:
    return FeatureNotSupported(
        f'option "{option}" of subscription "{sub.subname}" cannot be changed',
        hint="Drop the subscription and create it again.",
    )


def refresh_subscription(name: str, site: Site) -> None:
    """``pgsub refresh``: REFRESH PUBLICATION of a subscription by name; new tables are copied."""
    sub = must_be_ready(name, site)
    with closing(site.connect(sub)) as conn:
        refresh_publication(sub, conn, site, copy_data=True)


def refresh_publication(sub: Subscription, conn: Publisher, site: Site, *, copy_data: bool) -> None:
    """ALTER SUBSCRIPTION … REFRESH PUBLICATION, over the whole publication list.

    Returns when the workers go by the new list.
    """
    if _refresh_tables(sub, conn, site, copy_data=copy_data):
        await_workers(sub, site)


def _refresh_tables(sub: Subscription, conn: Publisher, site: Site, *, copy_data: bool) -> bool:
    """Store which tables are published now; whether that is anything new."""
    mapped = published_tables(conn, sub, site)
    known = {(rel.nspname, rel.relname): rel for rel in site.store.rels(sub.oid)}
    new = [table for table in mapped if (table.remote.nspname, table.remote.relname) not in known]
    if new:
        raise_first(list(lake_findings(new, site.lake_tables, site.store, sub)))
        _add_tables(sub, new, conn, site, copy_data=copy_data)
    published = {(table.remote.nspname, table.remote.relname): table for table in mapped}
    removed = [rel for name, rel in known.items() if name not in published]
    distrusted = [
        (rel, published[name].remote.fingerprint)
        for name, rel in known.items()
        if name in published and rel.fingerprint != published[name].remote.fingerprint
    ]
    with site.store.transaction():
        for rel in removed:
            site.store.delete_rel(sub.oid, rel.srrelid)
            site.store.origin_drop(origin_name(sub.oid, rel.srrelid))
        for rel, fingerprint in distrusted:
            # What the copy was trusted by has changed: inserted keys may be there already.
            site.store.update_rel(sub.oid, rel.srrelid, copied=False, fingerprint=fingerprint)
    for rel in removed:
        # A copy that went on would be published beside the one that starts if the table returns.
        site.stop_sync_worker(sub.oid, rel.srrelid)
        name = qualified_name(rel.nspname, rel.relname)
        site.notify(notice(f'table "{name}" removed from "{sub.subname}"'))
    return bool(new or removed or distrusted)


def _add_tables(
    sub: Subscription, new: list[MappedTable], conn: Publisher, site: Site, *, copy_data: bool
) -> None:
    """Rows and, without copy_data, lake tables whose changes begin where the worker stands."""
    if copy_data:
        for error in privilege_findings(conn, new):
            # Not refused: the tables that can be read must not wait for the one that cannot.
            site.notify(warning(error.primary, detail=error.detail, hint=error.hint))
        with site.store.transaction():
            for table in new:
                site.store.insert_rel(new_rel(sub.oid, table, copy_data=True))
    else:
        # With a worker that goes on meanwhile, which of its transactions came before a table
        # joined would be one thing now and another after a crash.
        with site.held(sub.oid):
            floor = _stand(sub, site)
            for table in new:
                _join_at(sub, table, floor, site)
    for table in new:
        site.notify(notice(f'table "{table.name}" added to subscription "{sub.subname}"'))


def _join_at(sub: Subscription, table: MappedTable, floor: LSN, site: Site) -> None:
    """Lake table first, then the row, whole: a row without its lake table stops the worker.

    A command that dies between the two leaves a lake table of ours, which the next one takes.
    """
    rel = new_rel(sub.oid, table, copy_data=False)
    with site.store.transaction():
        # For its oid only, which the lake table's location has in it and the row gets again.
        relid = site.store.insert_rel(rel).srrelid
        site.store.delete_rel(sub.oid, relid)
    rel = replace(rel, srrelid=relid)
    site.store.insert_rel(make_lake_table(sub, rel, table, floor, site))


def _stand(sub: Subscription, site: Site) -> LSN:
    """The end of the last transaction that will not be applied again."""
    now = must_have(sub.subname, site)
    return LSN(max(now.max_flush_lsn, site.store.origin_lsn(origin_name(sub.oid))))
