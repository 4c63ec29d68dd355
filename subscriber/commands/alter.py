"""ALTER SUBSCRIPTION: a function for every form of the statement.

A form checks in PostgreSQL's order (``alter_rules``), asks the publisher where necessary, and then
stores the change in a single catalog transaction, on the row as read in the transaction: an error
changes nothing. A slot is altered before the row, because the slot's change cannot be undone: a
command that dies in between is repeated. At the end the workers are woken, and the command returns
after the workers have read the change or have ended.

The apply worker knows the consequences of a change (``reload.reread_subscription``). For most
changes the worker ends and is started again at the same position: slot, origin and tables belong to
the subscription's oid, not to the name. SKIP, synchronous_commit, disable_on_error and run_as_owner
need no restart.

A new slot. The positions stay. The worker checks before streaming whether the positions fit the
slot, as at every start (``same_server``)::

    confirmed up to 500; SET (slot_name = other), a slot created at 900
    highest confirmed is 500, the slot's position is 900: 55000, the gap and its remedies

    … a slot at position 300: the server sends 300..500 again, every table skips known changes

A new connection. The command does not try the connection. A worker refuses a server or database
with other positions in the same way; a sync worker that copies from the old server compares the
servers before publishing the copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from catalog.errcodes import DuplicateObject, ObjectInUse, SyntaxErrorOrAccess
from catalog.pg_lsn import LSN
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import Subscription, check_subscription_name
from config.conninfo import Conninfo, split_password
from config.statements import PublicationAction
from subscriber.commands.alter_rules import (
    OptionsChange,
    check_refresh,
    check_role,
    check_skip,
    merge_publications,
    options_change,
)
from subscriber.commands.context import CommandContext
from subscriber.commands.create_drop import disable_subscription, enable_subscription
from subscriber.commands.leaked_slots import forget_leak
from subscriber.commands.main_slot import alter_main_slot
from subscriber.commands.refresh import altering, await_workers, refresh_publication, store_columns
from subscriber.commands.subscription_row import must_be_ready, must_have
from subscriber.launcher.passfile import has_password, remove_passfile, write_passfile
from subscriber.messages import notice, warning
from workers.publisher.password_required import check_conninfo, check_privilege
from workers.stream.prepared_xacts import PreparedXacts


def alter_connection(name: str, conninfo: str, context: CommandContext) -> None:
    """ALTER SUBSCRIPTION … CONNECTION: parsed, not tried. Without a password none is kept."""
    sub = must_be_ready(name, context)
    connection = split_password(conninfo, Path.cwd())
    if connection.password is not None and sub.password_env is not None:
        raise SyntaxErrorOrAccess(
            "password in connection and password_env are exclusive",
            hint=f'Leave the password out: it is taken from "{sub.password_env}".',
        )
    if connection.password is not None and sub.password_command is not None:
        raise SyntaxErrorOrAccess(
            "password in connection and password_command are exclusive",
            hint="Leave the password out: password_command prints the password.",
        )
    elsewhere = (sub.password_env, sub.password_command) != (None, None)
    check_conninfo(sub, context.settings, given=connection.password is not None or elsewhere)
    with password_file(sub, connection, context) as passfile:
        _store_and_reload(sub, {"subconninfo": connection.text, **passfile}, context)


def alter_publications(
    name: str,
    action: PublicationAction,
    publications: Sequence[str],
    context: CommandContext,
    *,
    refresh: bool,
    copy_data: bool,
) -> None:
    """ALTER SUBSCRIPTION … { SET | ADD | DROP } PUBLICATION; refreshes the whole list."""
    sub = must_be_ready(name, context)
    columns = {"subpublications": merge_publications(sub, action, publications)}
    if not refresh:
        _store_and_reload(sub, columns, context)
        return
    check_refresh(sub, action, copy_data=copy_data)
    validate = () if action == "drop" else tuple(publications)
    with closing(context.connect(sub)) as conn:
        refresh_publication(
            sub, conn, context, copy_data=copy_data, columns=columns, validate=validate
        )


def alter_refresh(name: str, context: CommandContext, *, copy_data: bool) -> None:
    """ALTER SUBSCRIPTION … REFRESH PUBLICATION."""
    sub = must_be_ready(name, context)
    check_refresh(sub, None, copy_data=copy_data)
    with closing(context.connect(sub)) as conn:
        refresh_publication(sub, conn, context, copy_data=copy_data)


def alter_enabled(name: str, enabled: bool, context: CommandContext) -> None:
    """ALTER SUBSCRIPTION … { ENABLE | DISABLE }; DISABLE returns after the workers' end."""
    (enable_subscription if enabled else disable_subscription)(name, context)


def alter_options(name: str, options: Mapping[str, Any], context: CommandContext) -> None:
    """ALTER SUBSCRIPTION … SET (…), with parsed values; None is NONE."""
    sub = must_be_ready(name, context)
    check_privilege(options.get("password_required", True), context.settings)
    change = options_change(
        sub,
        options,
        running=lambda: has_running_worker(sub, context),
        prepared=lambda: has_prepared_xacts(sub, context),
    )
    alter_slot_of(sub, change, context)
    _store_and_reload(sub, change.columns, context)


def alter_skip(name: str, lsn: LSN | None, context: CommandContext) -> None:
    """ALTER SUBSCRIPTION … SKIP: the transaction with end ``lsn``; None skips nothing."""
    sub = must_be_ready(name, context)
    with altering(sub, context) as now:
        skip = check_skip(lsn, context.store.origin_lsn(origin_name(now.oid)))
        changed = context.store.update_subscription(now.oid, subskiplsn=skip)
    wait_for_reload(changed, context)


def alter_rename(name: str, new: str, context: CommandContext) -> None:
    """ALTER SUBSCRIPTION … RENAME TO. Slot, origin and tables stay unchanged."""
    check_subscription_name(new)
    sub = must_be_ready(name, context)
    with altering(sub, context) as now:
        if context.store.subscription_by_name(new) is not None:
            raise DuplicateObject(f'subscription "{new}" already exists')
        changed = context.store.update_subscription(now.oid, subname=new)
    context.notify(
        notice(
            f'a configuration file that has subscription "{name}" must name it "{new}" from now on'
        )
    )
    wait_for_reload(changed, context)


def alter_owner(name: str, role: str | None, context: CommandContext) -> None:
    """ALTER SUBSCRIPTION … OWNER TO: the lake has a single role. None: CURRENT_USER."""
    check_role(role)
    must_have(name, context)


def has_running_worker(sub: Subscription, context: CommandContext) -> bool:
    """Does a worker of the subscription run?"""
    return any(worker.subid == sub.oid for worker in context.workers())


def has_prepared_xacts(sub: Subscription, context: CommandContext) -> bool:
    """``LookupGXactBySubid``: has the subscription prepared transactions?"""
    return bool(PreparedXacts(context.data_dir, sub.subuuid, sub.oid).all())


def alter_slot_of(sub: Subscription, change: OptionsChange, context: CommandContext) -> None:
    """Alter the subscription's slot on the publisher, if the change concerns the slot."""
    if not change.concerns_slot:
        return
    with closing(context.connect(sub)) as conn:
        alter_main_slot(sub, conn, failover=change.failover, two_phase=change.two_phase)


@contextmanager
def password_file(
    sub: Subscription, connection: Conninfo, context: CommandContext
) -> Iterator[dict[str, Any]]:
    """The column of a changed password; the caller changes the row inside.

    At the end, also after an error, a password file without a row is removed.
    """
    columns: dict[str, Any] = {}
    if connection.password is None and sub.passfile is not None:
        columns["passfile"] = None
    elif connection.password is not None and not has_password(sub.passfile, connection.password):
        columns["passfile"] = write_passfile(context.data_dir, sub.subuuid, connection.password)
    try:
        yield columns
    finally:
        if columns:
            now = context.store.subscription(sub.oid)
            for path in (sub.passfile, columns["passfile"]):
                if now is None or now.passfile != path:
                    remove_passfile(path)


def _store_and_reload(
    sub: Subscription, columns: Mapping[str, Any], context: CommandContext
) -> Subscription:
    with altering(sub, context) as now:
        changed = store_columns(now, columns, context)
    note_changed_slot(sub, changed, context)
    wait_for_reload(changed, context)
    return changed


def note_changed_slot(before: Subscription, sub: Subscription, context: CommandContext) -> None:
    """Take a new slot off the leaked slots; the old slot stays on the publisher."""
    if sub.subslotname == before.subslotname:
        return
    # The server of a new connection is not known yet.
    same = sub.subconninfo == before.subconninfo
    forget_leak(sub if same else replace(sub, sysid=None), context)
    if before.subslotname is not None:
        context.notify(
            notice(
                f'replication slot "{before.subslotname}" stays on the publisher and holds back '
                "WAL until it is dropped there"
            )
        )


def wait_for_reload(sub: Subscription, context: CommandContext) -> None:
    """Wait for the workers to reload. The change is stored: a late worker is only a warning."""
    context.wake_launcher()
    try:
        await_workers(sub, context)
    except ObjectInUse as error:
        context.notify(warning(error.primary, detail=error.detail, hint=error.hint))
