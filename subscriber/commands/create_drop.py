"""CREATE, DROP, ENABLE and DISABLE SUBSCRIPTION.

PostgreSQL's ``subscriptioncmds.c``, in an order that leaks no slot. A replication slot is not
transactional: a command that creates the slot before noting its name may die in between, and the
slot holds back WAL until the publisher's disk is full. The order of CREATE is::

    checks          publisher, published tables, lake tables, slot name: nothing is created yet
    row creating    with slot name and tables; workers ignore the row
    slot            on the publisher, or none with create_slot = false
    lake tables     only without copy_data: empty, with the position where changes begin
    row ready       origin, positions; the launcher is woken

An error after the row undoes the earlier steps. A process that died leaves a *creating* row, and
the next CREATE of the name drops the slot and starts again. DROP is the reverse: first *dropping*,
then the workers' end, the slot (may be missing), and the row. A slot that the publisher cannot drop
is listed as leaked.
"""

from __future__ import annotations

import dataclasses
import os
import uuid
from collections.abc import Sequence

from catalog.errcodes import (
    DuplicateObject,
    InvalidParameterValue,
    ObjectNotInPrerequisiteState,
    ReplicationError,
)
from catalog.pg_lsn import LSN
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import SubCreate, Subscription, TwoPhaseState
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from config.conninfo import passfile_line
from config.guc import Settings
from config.subscription import CreateSubscriptionStmt
from subscriber.commands.alter_rules import check_enable
from subscriber.commands.context import CommandContext
from subscriber.commands.lake_branches import drop_lake_branches
from subscriber.commands.leaked_slots import (
    drop_sync_slots,
    leave_sync_slots,
    retry_leaked_slots,
    sync_slots_left,
)
from subscriber.commands.main_slot import (
    check_slot_is_free,
    connect_to_drop,
    drop_unused_slot,
    make_slot,
    may_have_made_slot,
    release_slot,
    slot_warnings,
)
from subscriber.commands.schema.column_rules import rule_findings
from subscriber.commands.schema.file_writer import writer_findings
from subscriber.commands.schema.probe_lake import probe_before_copy
from subscriber.commands.subscription_row import must_be_ready, must_have, wait_for_workers
from subscriber.commands.table_mapping import (
    MappedTable,
    fetch_mapped_tables,
    lake_findings,
    missing_publications_warning,
    other_origins_warning,
    privilege_findings,
    published_findings,
    published_names,
    table_warnings,
)
from subscriber.commands.unseen_differences import changing_text_warnings, row_security_warnings
from subscriber.launcher.passfile import remove_passfile, write_passfile
from subscriber.messages import warning
from workers.lake.sources import owner_of, source_of
from workers.lake.table import SHARED, LakeIdent, Stamp
from workers.process import failpoints
from workers.publisher.interfaces import ReplicationConn
from workers.publisher.password_required import check_conninfo, check_privilege
from workers.stream.prepared_xacts import FIRST_WITH_TWO_PHASE, PreparedXacts
from workers.tables.shared_tables import add_source_to_table
from workers.tables.table_locks import TableLocks


def create_subscription(stmt: CreateSubscriptionStmt, context: CommandContext) -> Subscription:
    """CREATE SUBSCRIPTION; the stored row. After an error nothing is left half created."""
    check_privilege(stmt.options.password_required, context.settings)
    finish_leftover(stmt.name, context)
    if context.store.subscription_by_name(stmt.name) is not None:
        raise DuplicateObject(
            f'subscription "{stmt.name}" already exists',
            hint=f"pgsub up brings it in line with the file, pgsub drop {stmt.name} removes it.",
        )
    check_password(stmt, context.settings)
    sub = new_row(stmt)
    if stmt.connection.password is not None:
        passfile = write_passfile(context.data_dir, sub.subuuid, stmt.connection.password)
        sub = dataclasses.replace(sub, passfile=passfile)
    try:
        stored = _create(sub, stmt, context)
    except BaseException:
        if context.store.subscription_by_name(stmt.name) is None:
            remove_passfile(sub.passfile)
        raise
    if stored.subenabled:
        context.wake_launcher()
    return stored


def new_row(stmt: CreateSubscriptionStmt) -> Subscription:
    """The row for CREATE, without facts about the publisher."""
    options = stmt.options
    return Subscription(
        subname=stmt.name,
        subconninfo=stmt.connection.text,
        subpublications=stmt.publication,
        subenabled=options.enabled,
        subbinary=options.binary,
        substream=options.streaming,
        subtwophasestate=TwoPhaseState.PENDING if options.two_phase else TwoPhaseState.DISABLED,
        subdisableonerr=options.disable_on_error,
        subpasswordrequired=options.password_required,
        subrunasowner=options.run_as_owner,
        subfailover=options.failover,
        subslotname=options.slot_name,
        subsynccommit=options.synchronous_commit,
        suborigin=options.origin,
        subuuid=str(uuid.uuid4()),
        create_slot=options.create_slot,
        sync_slot=stmt.sync_slot,
        refresh=stmt.refresh,
        password_env=stmt.password_env,
        password_command=stmt.password_command,
        password_command_ttl=stmt.password_command_ttl,
        tables=stmt.tables,
    )


def check_password(stmt: CreateSubscriptionStmt, settings: Settings) -> None:
    """Check that a required password is given (42501, 2F003), and that a named environment variable
    is set (22023) and can be written to a password file. libpq checks the password itself."""
    check_privilege(stmt.options.password_required, settings)
    places = (stmt.connection.password, stmt.password_env, stmt.password_command)
    given = any(place is not None for place in places)
    check_conninfo(new_row(stmt), settings, given=given)
    if stmt.password_env is None:
        return
    if stmt.password_env not in os.environ:
        raise InvalidParameterValue(
            f'environment variable "{stmt.password_env}" is not set',
            hint=f'Subscription "{stmt.name}" takes its password from it (password_env).',
        )
    passfile_line(os.environ[stmt.password_env])  # else copies by Spark's tasks fail for ever


def _create(
    sub: Subscription, stmt: CreateSubscriptionStmt, context: CommandContext
) -> Subscription:
    if not stmt.options.connect:
        with context.store.transaction():
            stored = context.store.insert_subscription(
                dataclasses.replace(sub, subcreate=SubCreate.READY)
            )
            context.store.origin_create(origin_name(stored.oid))
        context.notify(
            warning(
                "subscription was created, but is not connected",
                hint="To initiate replication, create the replication slot on the publisher and "
                "enable the subscription.",
            )
        )
        return stored
    conn = context.connect(sub)
    try:
        sub = dataclasses.replace(sub, **conn.identify_system().stored())
        mapped = published_tables(conn, sub, context, validate=sub.subpublications)
        for message in slot_warnings(conn, sub):
            context.notify(message)
        if stmt.options.copy_data:
            for message in other_origins_warning(conn, sub):
                context.notify(message)
            raise_first(list(privilege_findings(conn, mapped)))
            for message in row_security_warnings(conn, published_names(mapped)):
                context.notify(message)
        if mapped:
            no_new_files = probe_before_copy(conn, mapped, stmt.options, context)
            raise_first(list(lake_findings(mapped, context.lake_tables, context.store, sub)))
            raise_first(list(writer_findings(mapped, no_new_files, context)))
        check_slot_is_free(conn, sub)
        return _make(sub, mapped, conn, context, copy_data=stmt.options.copy_data)
    finally:
        conn.close()


def published_tables(
    conn: ReplicationConn, sub: Subscription, context: CommandContext, *, validate: Sequence[str]
) -> list[MappedTable]:
    """The tables of the publications; raises the first finding.

    Warns of missing publications among ``validate``, the publications named by the command.
    """
    for message in missing_publications_warning(conn, validate) if validate else ():
        context.notify(message)
    mapped = fetch_mapped_tables(conn, sub.subpublications, sub.tables)
    raise_first(list(published_findings(mapped)))
    stored = context.store.subscription(sub.oid) if sub.oid else None
    rels = [] if stored is None else context.store.rels(sub.oid)
    for found in rule_findings(mapped, sub.tables, stored, rels):
        if isinstance(found, ReplicationError):
            raise found
        context.notify(found)
    for message in (*table_warnings(mapped, sub.tables), *changing_text_warnings(mapped)):
        context.notify(message)
    return mapped


def raise_first(findings: Sequence[ReplicationError]) -> None:
    """Raise the first finding; the DETAIL lists the rest."""
    if not findings:
        return
    first = findings[0]
    if len(findings) > 1:
        others = "; ".join(other.primary for other in findings[1:])
        first.detail = f"{first.detail or ''} Also: {others}.".strip()
    raise first


def _make(
    sub: Subscription,
    mapped: Sequence[MappedTable],
    conn: ReplicationConn,
    context: CommandContext,
    *,
    copy_data: bool,
) -> Subscription:
    """Row, slot, lake tables, ready; after a failure all steps are undone."""
    store = context.store
    if not copy_data and mapped and _can_enable_two_phase(sub, conn):
        sub = dataclasses.replace(sub, subtwophasestate=TwoPhaseState.ENABLED)
    with store.transaction():
        stored = store.insert_subscription(dataclasses.replace(sub, subcreate=SubCreate.CREATING))
        rels = [store.insert_rel(new_rel(stored.oid, table, copy_data)) for table in mapped]
    try:
        failpoints.reach("create.creating_stored")
        floor = make_slot(stored, conn, context)
    except BaseException as error:
        _undo_create(stored, conn, context, slot=may_have_made_slot(error))
        raise
    try:
        failpoints.reach("create.slot_created")
        rels = [
            make_lake_table(stored, rel, table, floor, context)
            for rel, table in zip(rels, mapped, strict=True)
            if rel.srsubstate is SubRelState.READY
        ]
        failpoints.reach("create.tables_made")
        with store.transaction():
            store.origin_create(origin_name(stored.oid))
            for rel in rels:
                store_new_rel(rel, context)
            ready = store.update_subscription(
                stored.oid, subcreate=SubCreate.READY, max_flush_lsn=floor
            )
    except BaseException:
        _undo_create(stored, conn, context, slot=True)
        raise
    failpoints.reach("create.ready_stored")
    return ready


def _can_enable_two_phase(sub: Subscription, conn: ReplicationConn) -> bool:
    """Can the new slot have ``two_phase`` at once? Else the apply worker turns the property on.

    A slot cannot be created with ``failover`` and ``two_phase``.
    """
    asked = sub.subtwophasestate is TwoPhaseState.PENDING
    can = conn.server_version >= FIRST_WITH_TWO_PHASE and not sub.subfailover
    return asked and can and sub.create_slot and sub.subslotname is not None


def new_rel(subid: int, table: MappedTable, copy_data: bool) -> SubscriptionRel:
    """The row of a new table of a subscription. Logical messages are never copied."""
    copies = copy_data and not table.holds_messages
    return SubscriptionRel(
        srsubid=subid,
        srrelid=0,
        srsubstate=SubRelState.INIT if copies else SubRelState.READY,
        srsublsn=None,
        nspname=table.remote.nspname,
        relname=table.remote.relname,
        lake_schema=table.ident.schema,
        lake_table=table.ident.table,
        fingerprint=table.remote.fingerprint,
        remote_relid=None if table.holds_messages else table.remote.relid,
    )


def make_lake_table(
    sub: Subscription, rel: SubscriptionRel, table: MappedTable, floor: LSN, context: CommandContext
) -> SubscriptionRel:
    """Create the lake table of a table without copy, with the position where changes begin."""
    epoch = str(uuid.uuid4())
    source, owner = source_of(sub, rel), owner_of(sub, rel)
    stamp = Stamp(origin_name(sub.oid), floor, epoch, floor, source)
    lake = context.lake()
    existing = lake.table(table.ident)
    if existing is None or (existing.owner == SHARED and existing.snapshot_id is None):
        # Most commands need no arrays.
        from workers.lake.new_layout import check_layout, layout_of
        from workers.tables.new_table import new_columns

        columns = new_columns(table.remote, table.options, table.ident, lake)
        layout = layout_of(table.options)
        check_layout(layout, columns, table.ident)
        lake.create_table(
            table.ident, columns, owner=owner, relid=rel.srrelid, stamp=stamp, layout=layout
        )
    elif existing.owner != SHARED:
        lake.adopt_table(
            table.ident, owner=owner, stamp=stamp, former_owners=context.store.former_owners()
        )
    if source:
        add_source_to_table(lake, TableLocks(context.data_dir), table.ident, sub, stamp)
    lake.make_durable([table.ident])
    return dataclasses.replace(rel, epoch=epoch, floor=floor, lake_lsn=floor)


def store_new_rel(rel: SubscriptionRel, context: CommandContext) -> None:
    """Store the results of ``make_lake_table`` in the row."""
    context.store.update_rel(
        rel.srsubid, rel.srrelid, epoch=rel.epoch, floor=rel.floor, lake_lsn=rel.lake_lsn
    )


# After a CREATE or DROP that failed or died


def finish_leftover(name: str, context: CommandContext) -> None:
    """Undo an unfinished CREATE of the name, or finish an unfinished DROP."""
    sub = context.store.subscription_by_name(name)
    if sub is None or sub.subcreate is SubCreate.READY:
        return
    if sub.subcreate is SubCreate.DROPPING:
        drop_subscription(name, context)
        return
    conn = context.connect(sub)
    try:
        _undo_create(sub, conn, context, slot=True)
    finally:
        conn.close()


def _undo_create(
    sub: Subscription, conn: ReplicationConn, context: CommandContext, *, slot: bool
) -> None:
    """Drop slot, empty lake tables and row. A failed step is left to the next CREATE."""
    try:
        if slot:
            drop_unused_slot(sub, conn, context)
        _drop_unused_tables(sub, context)
    except ReplicationError as error:
        context.notify(
            warning(
                f'could not undo the creation of subscription "{sub.subname}": {error}',
                hint="Create it again, or drop it, when the cause is removed.",
            )
        )
        return
    context.store.delete_subscription(sub.oid)
    remove_passfile(sub.passfile)


def _drop_unused_tables(sub: Subscription, context: CommandContext) -> None:
    """Drop the lake tables of a failed CREATE: owned, not adopted, never written."""
    for rel in context.store.rels(sub.oid):
        ident = LakeIdent(rel.lake_schema, rel.lake_table)
        options = sub.table_options(rel.nspname, rel.relname)
        if rel.srsubstate is not SubRelState.READY or options.adopt or options.shared:
            continue
        found = context.lake().table(ident)
        if found is not None and found.owner == sub.subuuid:
            context.lake().drop_table(ident)


# DROP, ENABLE, DISABLE


def drop_subscription(name: str, context: CommandContext, *, leave_slot: bool = False) -> None:
    """DROP SUBSCRIPTION. The lake tables stay, like a subscriber's tables in PostgreSQL.

    Raises 08006 before any change if the publisher cannot be reached or has no such slot. With
    ``leave_slot`` the publisher is not asked, and the slot is listed as leaked. An earlier DROP may
    have died after dropping the slot: to finish the earlier DROP the slot may be missing.
    """
    sub = must_have(name, context)
    if sub.subcreate is SubCreate.CREATING and not leave_slot:
        finish_leftover(name, context)
        if context.store.subscription(sub.oid) is not None:
            raise ObjectNotInPrerequisiteState(
                f'could not drop subscription "{name}"',
                hint=f"Use pgsub drop --leave-slot {name} to drop it without its slot.",
            )
        return
    conn = None if leave_slot else connect_to_drop(sub, context)
    try:
        context.store.update_subscription(sub.oid, subcreate=SubCreate.DROPPING, subenabled=False)
        context.wake_launcher()
        failpoints.reach("drop.dropping_stored")
        wait_for_workers(sub, context)
        left = sync_slots_left(sub, context.store.rels(sub.oid), context.store)
        if conn is not None:
            drop_sync_slots(sub, left, conn, context)
        else:
            leave_sync_slots(sub, left, context)
        leaked = release_slot(sub, conn, context)
        failpoints.reach("drop.slot_dropped")
        drop_lake_branches(sub, context.store.rels(sub.oid), context)
        if conn is not None:
            retry_leaked_slots(sub, conn, context)
    finally:
        if conn is not None:
            conn.close()
    PreparedXacts(context.data_dir, sub.subuuid, sub.oid).forget()
    with context.store.transaction():
        for rel in context.store.rels(sub.oid):
            context.store.origin_drop(origin_name(sub.oid, rel.srrelid))
        context.store.origin_drop(origin_name(sub.oid))
        context.store.delete_subscription(sub.oid)
    failpoints.reach("drop.row_deleted")
    if not leaked:
        remove_passfile(sub.passfile)
    context.wake_launcher()


def enable_subscription(name: str, context: CommandContext) -> None:
    """ALTER SUBSCRIPTION … ENABLE."""
    with context.store.transaction():
        sub = must_be_ready(name, context)
        check_enable(sub)
        context.store.update_subscription(sub.oid, subenabled=True)
    context.wake_launcher()


def disable_subscription(name: str, context: CommandContext) -> None:
    """ALTER SUBSCRIPTION … DISABLE; returns after the workers' end."""
    sub = must_be_ready(name, context)
    context.store.update_subscription(sub.oid, subenabled=False)
    context.wake_launcher()
    wait_for_workers(sub, context)
