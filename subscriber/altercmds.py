"""ALTER SUBSCRIPTION, one function per form; and ``up``, which alters what its file says otherwise.

Each checks in PostgreSQL's order (``alter_rules``), asks the publisher where it has to, and then
stores its change in one catalog transaction, on the row as it is in that transaction: an error
leaves everything as it was. A slot is altered before the row, as it cannot be taken back: a command
that dies between the two is repeated. Afterwards the workers are told, and the command returns when
they go by the change or have ended.

What a change does to the apply worker is the worker's to know (``reread.reread_subscription``). For
most it ends and is started again where it was: slot, origin and tables belong to the subscription's
oid, not to its name. SKIP, synchronous_commit, disable_on_error and run_as_owner need no restart.

Another slot. The positions stay. That they mean something with it, the worker finds out before it
streams, as at every start (``same_publisher``)::

    confirmed up to 500; SET (slot_name = other), which was made at 900
    highest confirmed is 500, the slot stands at 900: 55000, the gap and its remedies

    … which stands at 300: it sends 300..500 again, and every table skips what it holds

Another connection. Not tried here. A server, or a database of it, that is not the one the positions
come from is refused by the worker in the same way; a sync worker that copies from the old one
compares them before it shows its copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from catalog.errcodes import (
    ConnectionFailure,
    DuplicateObject,
    FeatureNotSupported,
    ObjectInUse,
    ReplicationError,
    SyntaxErrorOrAccess,
)
from catalog.namespace import qualified_name
from catalog.pg_lsn import LSN
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import Subscription, TableOptions, check_subscription_name
from config.conninfo import Conninfo, split_password
from config.statements import PublicationAction
from config.subscription import CreateSubscriptionStmt
from subscriber.alter_rules import (
    OptionsChange,
    check_enable,
    check_refresh,
    check_role,
    check_skip,
    merge_publications,
    options_change,
)
from subscriber.passfile import holds, remove_passfile, write_passfile
from subscriber.refresh import (
    altering,
    await_workers,
    refresh_publication,
    refresh_tables,
    store_columns,
)
from subscriber.remoteslot import alter_main_slot, forget_leak
from subscriber.report import notice, warning
from subscriber.site import Site
from subscriber.subscriptioncmds import (
    check_password,
    disable_subscription,
    enable_subscription,
    must_be_ready,
    must_have,
    new_row,
    raise_first,
)
from subscriber.tablemap import lake_ident
from workers.password_required import check_conninfo, check_privilege
from workers.shared_targets import source_of


def alter_connection(name: str, conninfo: str, site: Site) -> None:
    """ALTER SUBSCRIPTION … CONNECTION: parsed, not tried. Without a password it has none."""
    sub = must_be_ready(name, site)
    connection = split_password(conninfo, Path.cwd())
    if connection.password is not None and sub.password_env is not None:
        raise SyntaxErrorOrAccess(
            "password in connection and password_env are exclusive",
            hint=f'Leave the password out: it is taken from "{sub.password_env}".',
        )
    given = connection.password is not None or sub.password_env is not None
    check_conninfo(sub, site.settings, given=given)
    with _passfile(sub, connection, site) as passfile:
        _store_and_tell(sub, {"subconninfo": connection.text, **passfile}, site)


def alter_publications(
    name: str,
    action: PublicationAction,
    publications: Sequence[str],
    site: Site,
    *,
    refresh: bool,
    copy_data: bool,
) -> None:
    """ALTER SUBSCRIPTION … { SET | ADD | DROP } PUBLICATION; the refresh is of the whole list."""
    sub = must_be_ready(name, site)
    columns = {"subpublications": merge_publications(sub, action, publications)}
    if not refresh:
        _store_and_tell(sub, columns, site)
        return
    check_refresh(sub, action, copy_data=copy_data)
    validate = () if action == "drop" else tuple(publications)
    with closing(site.connect(sub)) as conn:
        refresh_publication(
            sub, conn, site, copy_data=copy_data, columns=columns, validate=validate
        )


def alter_refresh(name: str, site: Site, *, copy_data: bool) -> None:
    """ALTER SUBSCRIPTION … REFRESH PUBLICATION."""
    sub = must_be_ready(name, site)
    check_refresh(sub, None, copy_data=copy_data)
    with closing(site.connect(sub)) as conn:
        refresh_publication(sub, conn, site, copy_data=copy_data)


def alter_enabled(name: str, enabled: bool, site: Site) -> None:
    """ALTER SUBSCRIPTION … { ENABLE | DISABLE }; the latter returns when the workers have gone."""
    (enable_subscription if enabled else disable_subscription)(name, site)


def alter_options(name: str, options: Mapping[str, Any], site: Site) -> None:
    """ALTER SUBSCRIPTION … SET (…), with values that were read already; None is NONE."""
    sub = must_be_ready(name, site)
    check_privilege(options.get("password_required", True), site.settings)
    change = options_change(sub, options, running=lambda: _running(sub, site))
    _alter_slot(sub, change, site)
    _store_and_tell(sub, change.columns, site)


def alter_skip(name: str, lsn: LSN | None, site: Site) -> None:
    """ALTER SUBSCRIPTION … SKIP: the transaction that finishes at ``lsn``; None for none."""
    sub = must_be_ready(name, site)
    with altering(sub, site) as now:
        skip = check_skip(lsn, site.store.origin_lsn(origin_name(now.oid)))
        changed = site.store.update_subscription(now.oid, subskiplsn=skip)
    _tell(changed, site)


def alter_rename(name: str, new: str, site: Site) -> None:
    """ALTER SUBSCRIPTION … RENAME TO. Slot, origin and tables stay what they are."""
    check_subscription_name(new)
    sub = must_be_ready(name, site)
    with altering(sub, site) as now:
        if site.store.subscription_by_name(new) is not None:
            raise DuplicateObject(f'subscription "{new}" already exists')
        changed = site.store.update_subscription(now.oid, subname=new)
    site.notify(
        notice(
            f'a configuration file that has subscription "{name}" must name it "{new}" from now on'
        )
    )
    _tell(changed, site)


def alter_owner(name: str, role: str | None, site: Site) -> None:
    """ALTER SUBSCRIPTION … OWNER TO: there is one role, so nothing changes. None: CURRENT_USER."""
    check_role(role)
    must_have(name, site)


def _running(sub: Subscription, site: Site) -> bool:
    return any(worker.subid == sub.oid for worker in site.workers())


def _alter_slot(sub: Subscription, change: OptionsChange, site: Site) -> None:
    if not change.concerns_slot:
        return
    with closing(site.connect(sub)) as conn:
        alter_main_slot(sub, conn, failover=change.failover, two_phase=change.two_phase)


@contextmanager
def _passfile(sub: Subscription, connection: Conninfo, site: Site) -> Iterator[dict[str, Any]]:
    """The password's column, if it changes; inside, the row is changed.

    Whatever happens, the file that no row names any more is removed.
    """
    columns: dict[str, Any] = {}
    if connection.password is None and sub.passfile is not None:
        columns["passfile"] = None
    elif connection.password is not None and not holds(sub.passfile, connection.password):
        columns["passfile"] = write_passfile(site.data_dir, sub.subuuid, connection.password)
    try:
        yield columns
    finally:
        if columns:
            now = site.store.subscription(sub.oid)
            for path in (sub.passfile, columns["passfile"]):
                if now is None or now.passfile != path:
                    remove_passfile(path)


def _store_and_tell(sub: Subscription, columns: Mapping[str, Any], site: Site) -> Subscription:
    with altering(sub, site) as now:
        changed = store_columns(now, columns, site)
    _mind_the_slot(sub, changed, site)
    _tell(changed, site)
    return changed


def _mind_the_slot(before: Subscription, sub: Subscription, site: Site) -> None:
    """Another slot is nobody's to drop any more; the old one stays on the publisher."""
    if sub.subslotname == before.subslotname:
        return
    # Where another connection leads is not known yet.
    same = sub.subconninfo == before.subconninfo
    forget_leak(sub if same else replace(sub, sysid=None), site)
    if before.subslotname is not None:
        site.notify(
            notice(
                f'replication slot "{before.subslotname}" stays on the publisher and holds back '
                "WAL until it is dropped there"
            )
        )


def _tell(sub: Subscription, site: Site) -> None:
    """Have the workers go by the change. It is stored: one that is late is a warning."""
    site.wake_launcher()
    try:
        await_workers(sub, site)
    except ObjectInUse as error:
        site.notify(warning(error.primary, detail=error.detail, hint=error.hint))


# up FILE

_FOLLOWED: Final = (
    "subconninfo",
    "subenabled",
    "subpublications",
    "sync_slot",
    "password_env",
    "tables",
)
"""Columns that take what the file says."""

_OPTIONS: Final = {
    "binary": "subbinary",
    "streaming": "substream",
    "disable_on_error": "subdisableonerr",
    "password_required": "subpasswordrequired",
    "run_as_owner": "subrunasowner",
    "synchronous_commit": "subsynccommit",
    "origin": "suborigin",
    "slot_name": "subslotname",
    "failover": "subfailover",
}
"""Options that are set to what the file says, as ALTER SUBSCRIPTION … SET would."""

_WHEN_WRITTEN: Final = ("slot_name", "failover")
"""Those that stay what they are unless the file has them."""


def bring_in_line(sub: Subscription, stmt: CreateSubscriptionStmt, site: Site) -> Subscription:
    """Make an existing, ready subscription what its file says; the row as it is then.

    A NOTICE says what changes. Only a warning: a publisher that cannot be reached (the workers go
    on trying, and the next ``up`` refreshes again), and a worker that goes by the old row for
    longer than one waits.
    """
    raise_first(list(refusals(sub, stmt, site)))
    check_password(stmt, site.settings)
    change = _options_change(sub, stmt, site)
    if change.concerns_slot and sub.subenabled:
        # By the file it is to be disabled, or this was refused; nobody may read from the slot.
        disable_subscription(sub.subname, site)
        sub = must_be_ready(sub.subname, site)
    wanted = replace(new_row(stmt), subenabled=_enabled(sub, stmt))
    columns = dict(change.columns)
    columns |= {
        name: getattr(wanted, name)
        for name in _FOLLOWED
        if getattr(wanted, name) != getattr(sub, name)
    }
    with _passfile(sub, stmt.connection, site) as passfile:
        columns |= passfile
        _alter_slot(replace(sub, **{**columns, "subslotname": sub.subslotname}), change, site)
        return _store_and_refresh(sub, columns, stmt, site)


def _enabled(sub: Subscription, stmt: CreateSubscriptionStmt) -> bool:
    """What was enabled or disabled by hand stays so unless the file says otherwise."""
    return stmt.options.enabled if "enabled" in stmt.options.specified else sub.subenabled


def _options_change(sub: Subscription, stmt: CreateSubscriptionStmt, site: Site) -> OptionsChange:
    """What ALTER SUBSCRIPTION … SET would have to say to make the options those of the file."""
    wanted, written = new_row(stmt), stmt.options.specified
    options = {
        name: getattr(wanted, column)
        for name, column in _OPTIONS.items()
        if getattr(wanted, column) != getattr(sub, column)
        and (name in written or name not in _WHEN_WRITTEN)
    }
    enabled = _enabled(sub, stmt)
    asked = sub if enabled else replace(sub, subenabled=False)
    change = options_change(asked, options, running=lambda: _running(sub, site))
    if enabled:
        check_enable(replace(sub, **change.columns))
    return change


def _store_and_refresh(
    sub: Subscription, columns: Mapping[str, Any], stmt: CreateSubscriptionStmt, site: Site
) -> Subscription:
    changed, anything = sub, False
    conn = _connect(replace(sub, **columns), site) if stmt.options.connect else None
    if conn is None:
        if columns:
            with altering(sub, site) as now:
                changed = store_columns(now, columns, site)
            _say_what(changed, columns, site)
    else:
        with closing(conn):
            changed, anything = refresh_tables(
                sub,
                conn,
                site,
                copy_data=stmt.options.copy_data,
                columns=columns,
                validate=stmt.publication,
            )
            _say_what(changed, columns, site)
    if columns:
        _mind_the_slot(sub, changed, site)
    if columns or anything:
        _tell(changed, site)
    return changed


def _connect(sub: Subscription, site: Site) -> Any:
    """The publisher, or a warning that its tables could not be looked at."""
    try:
        return site.connect(sub)
    except ConnectionFailure as error:
        site.notify(
            warning(
                f'tables of subscription "{sub.subname}" were not refreshed: {error.primary}',
                detail=error.detail,
                hint="The subscription goes on with the tables it has; run up again later.",
            )
        )
        return None


def _say_what(sub: Subscription, columns: Mapping[str, Any], site: Site) -> None:
    if columns:
        names = ", ".join(sorted(name.removeprefix("sub") for name in columns))
        site.notify(notice(f'subscription "{sub.subname}" was brought in line: {names}'))


def refusals(
    sub: Subscription, stmt: CreateSubscriptionStmt, site: Site
) -> Iterator[ReplicationError]:
    """What the file says otherwise and an existing subscription cannot become."""
    try:
        _options_change(sub, stmt, site)
    except ReplicationError as error:
        yield error
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
        yield from _generated_refusals(table)


def _generated_refusals(table: TableOptions) -> Iterator[ReplicationError]:
    """Expressions that could not be carried out, whichever columns there are."""
    if table.generated:
        from workers.lake.generated import read_generated

        try:
            read_generated(table.generated)
        except ReplicationError as error:
            yield error
