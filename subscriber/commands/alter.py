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
from subscriber.commands.create_drop import (
    disable_subscription,
    enable_subscription,
    must_be_ready,
    must_have,
)
from subscriber.commands.leaked_slots import forget_leak
from subscriber.commands.main_slot import alter_main_slot
from subscriber.commands.refresh import altering, await_workers, refresh_publication, store_columns
from subscriber.launcher.passfile import has_password, remove_passfile, write_passfile
from subscriber.messages import notice, warning
from workers.publisher.password_required import check_conninfo, check_privilege


def alter_connection(name: str, conninfo: str, context: CommandContext) -> None:
    """ALTER SUBSCRIPTION … CONNECTION: parsed, not tried. Without a password it has none."""
    sub = must_be_ready(name, context)
    connection = split_password(conninfo, Path.cwd())
    if connection.password is not None and sub.password_env is not None:
        raise SyntaxErrorOrAccess(
            "password in connection and password_env are exclusive",
            hint=f'Leave the password out: it is taken from "{sub.password_env}".',
        )
    given = connection.password is not None or sub.password_env is not None
    check_conninfo(sub, context.settings, given=given)
    with _passfile(sub, connection, context) as passfile:
        _store_and_tell(sub, {"subconninfo": connection.text, **passfile}, context)


def alter_publications(
    name: str,
    action: PublicationAction,
    publications: Sequence[str],
    context: CommandContext,
    *,
    refresh: bool,
    copy_data: bool,
) -> None:
    """ALTER SUBSCRIPTION … { SET | ADD | DROP } PUBLICATION; the refresh is of the whole list."""
    sub = must_be_ready(name, context)
    columns = {"subpublications": merge_publications(sub, action, publications)}
    if not refresh:
        _store_and_tell(sub, columns, context)
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
    """ALTER SUBSCRIPTION … { ENABLE | DISABLE }; the latter returns when the workers have gone."""
    (enable_subscription if enabled else disable_subscription)(name, context)


def alter_options(name: str, options: Mapping[str, Any], context: CommandContext) -> None:
    """ALTER SUBSCRIPTION … SET (…), with values that were read already; None is NONE."""
    sub = must_be_ready(name, context)
    check_privilege(options.get("password_required", True), context.settings)
    change = options_change(sub, options, running=lambda: _running(sub, context))
    _alter_slot(sub, change, context)
    _store_and_tell(sub, change.columns, context)


def alter_skip(name: str, lsn: LSN | None, context: CommandContext) -> None:
    """ALTER SUBSCRIPTION … SKIP: the transaction that finishes at ``lsn``; None for none."""
    sub = must_be_ready(name, context)
    with altering(sub, context) as now:
        skip = check_skip(lsn, context.store.origin_lsn(origin_name(now.oid)))
        changed = context.store.update_subscription(now.oid, subskiplsn=skip)
    _tell(changed, context)


def alter_rename(name: str, new: str, context: CommandContext) -> None:
    """ALTER SUBSCRIPTION … RENAME TO. Slot, origin and tables stay what they are."""
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
    _tell(changed, context)


def alter_owner(name: str, role: str | None, context: CommandContext) -> None:
    """ALTER SUBSCRIPTION … OWNER TO: there is one role, so nothing changes. None: CURRENT_USER."""
    check_role(role)
    must_have(name, context)


def _running(sub: Subscription, context: CommandContext) -> bool:
    return any(worker.subid == sub.oid for worker in context.workers())


def _alter_slot(sub: Subscription, change: OptionsChange, context: CommandContext) -> None:
    if not change.concerns_slot:
        return
    with closing(context.connect(sub)) as conn:
        alter_main_slot(sub, conn, failover=change.failover, two_phase=change.two_phase)


@contextmanager
def _passfile(
    sub: Subscription, connection: Conninfo, context: CommandContext
) -> Iterator[dict[str, Any]]:
    """The password's column, if it changes; inside, the row is changed.

    Whatever happens, the file that no row names any more is removed.
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


def _store_and_tell(
    sub: Subscription, columns: Mapping[str, Any], context: CommandContext
) -> Subscription:
    with altering(sub, context) as now:
        changed = store_columns(now, columns, context)
    _mind_the_slot(sub, changed, context)
    _tell(changed, context)
    return changed


def _mind_the_slot(before: Subscription, sub: Subscription, context: CommandContext) -> None:
    """Another slot is nobody's to drop any more; the old one stays on the publisher."""
    if sub.subslotname == before.subslotname:
        return
    # Where another connection leads is not known yet.
    same = sub.subconninfo == before.subconninfo
    forget_leak(sub if same else replace(sub, sysid=None), context)
    if before.subslotname is not None:
        context.notify(
            notice(
                f'replication slot "{before.subslotname}" stays on the publisher and holds back '
                "WAL until it is dropped there"
            )
        )


def _tell(sub: Subscription, context: CommandContext) -> None:
    """Have the workers go by the change. It is stored: one that is late is a warning."""
    context.wake_launcher()
    try:
        await_workers(sub, context)
    except ObjectInUse as error:
        context.notify(warning(error.primary, detail=error.detail, hint=error.hint))


"""Columns that take what the file says."""
"""Options that are set to what the file says, as ALTER SUBSCRIPTION … SET would."""
"""Those that stay what they are unless the file has them."""
