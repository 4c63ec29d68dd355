"""``pgsub rebuild FILE``: a new catalog for tables that are in the lake already.

The data directory is lost, or its ``catalog.db``; lake and replication slot still exist. A lake
table has its owner's uuid in the properties, and its position in the newest snapshot of pgsub (LSN,
copy id and copy position). The slot has the confirmed position. The facts suffice to go on, if the
catalog claims no more than the facts prove:

1. A table with a position becomes ``s`` at the LSN: the gate and the table's skip rule then let the
   same changes pass. Inserted keys are looked up: the lost catalog knew how the copy was made.
2. Every other table is ``i``: without a lake table, or with an unfinished copy (LSN 0/0). A copy
that
   is published but not caught up (``f``: the snapshot has the table's own origin) is replaced by a
   new copy. Slots of synchronisations have a number in their names, made from the uuid. Their
   tables are copied again or done: all such slots are listed as leaked.
3. The origin is 0/0: the server begins at the slot's position.
4. The table of logical messages is as 1. Without a position the table is left out, because there
   is nothing to copy: ``pgsub up`` makes the table.
5. The highest flush position ever sent is assumed to be the slot's. A table behind the slot had no
   change in between, or has lost changes: no fact decides, and a warning lists the table.

A trace. The slot is at 500; a is at 700, b at 300, c was being copied::

    checks    the slot exists, idle, of pgoutput; the publisher is at 700 at least; one owner
    fence     an empty snapshot on main of a, b, c: a dead worker's commit cannot be published
    read      a 700, b 300, c 0/0        from the answers of the fences, not from earlier reads
    catalog   a s(700), b s(300), c i; max_flush_lsn = 500; WARNING: b is unproven
    stream    begins at 500: a skips 501..700, b takes them, c is copied

Before the catalog's only transaction the command writes nothing but the fences, and drops branches
of the lost workers. After a failure or a crash the command is simply run again.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from catalog.errcodes import (
    DuplicateObject,
    FeatureNotSupported,
    ObjectInUse,
    ObjectNotInPrerequisiteState,
    UndefinedObject,
)
from catalog.leaked_slot import leaked_slot
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_replication_origin import origin_name, table_of_origin
from catalog.pg_subscription import SubCreate, Subscription, system_identifier
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from config.limits import FENCE_AT_ONCE_TABLES
from config.load import Config
from config.subscription import CreateSubscriptionStmt
from subscriber.commands.context import CommandContext
from subscriber.commands.create_drop import (
    check_password,
    new_rel,
    new_row,
    published_tables,
    raise_first,
)
from subscriber.commands.leaked_slots import leak_warning
from subscriber.commands.table_mapping import (
    MappedTable,
    lake_findings,
    privilege_findings,
    published_names,
    quoted,
)
from subscriber.commands.unseen_differences import row_security_warnings
from subscriber.launcher.passfile import remove_passfile, temporary_passfile, write_passfile
from subscriber.messages import notice, warning
from workers.lake.table import BRANCH_PREFIX, LakeTable, Stamp
from workers.publisher.interfaces import ReplicationConn, SystemIdentity
from workers.publisher.replication_slots import RemoteSlot, fetch_slot, fetch_sync_slots

_BEGIN_ANEW: Final = (
    "To begin anew: drop the slot on the publisher with pg_drop_replication_slot(), the lake "
    'tables with pgsub sql "DROP TABLE lake.SCHEMA.TABLE", and run pgsub up FILE.'
)


@dataclass(frozen=True, slots=True)
class Claim:
    """A published table with its lake table, if any."""

    table: MappedTable
    lake: LakeTable | None

    @property
    def known(self) -> bool:
        """Has a subscription of pgsub ever written the lake table?"""
        return self.lake is not None and (self.lake.stamp or self.lake.owner) is not None

    @property
    def position(self) -> Stamp | None:
        """The table's position; None without a finished copy."""
        stamp = None if self.lake is None else self.lake.stamp
        unfinished = stamp is None or stamp.lsn == InvalidXLogRecPtr or self.sync_of is not None
        return None if unfinished else stamp

    @property
    def sync_of(self) -> tuple[int, int] | None:
        """The former oids of subscription and table, for a copy published in state ``f``.

        The copy cannot catch up any more: its stream ended with the catalog.
        """
        stamp = None if self.lake is None else self.lake.stamp
        return None if stamp is None else table_of_origin(stamp.origin)


# Decisions


def owner_of(name: str, claims: Iterable[Claim]) -> str:
    """The uuid of the owner of the lake tables; 55000 without a single owner."""
    owners = {
        claim.table.name: claim.lake.owner
        for claim in claims
        if claim.known and claim.lake is not None
    }
    found = set(owners.values())
    if not found:
        raise ObjectNotInPrerequisiteState(
            f'the lake holds no table of subscription "{name}"',
            hint="Is lake of FILE the lake it wrote to, and are its tables mapped as they were? "
            + _BEGIN_ANEW,
        )
    (owner, *others) = sorted(found, key=str)
    if others or owner is None:
        listed = ", ".join(f'"{table}": {whose or "none"}' for table, whose in owners.items())
        raise ObjectNotInPrerequisiteState(
            f'the lake tables of subscription "{name}" have several owners or none',
            detail=f"Their owners: {listed}.",
            hint="Map the tables that are not its own to other names with to:, or take them out "
            "of its publications. pgsub.owner is a table property of each lake table.",
        )
    return owner


def check_slot(sub: Subscription, slot: RemoteSlot | None) -> LSN:
    """The slot's position; 55000, 55006 or 42704 if the slot cannot be the subscription's."""
    name = sub.subslotname
    if slot is None:
        raise UndefinedObject(
            f'replication slot "{name}" does not exist on the publisher',
            detail="What was committed since the tables were written cannot be had without it.",
            hint="Name the slot with slot_name if it has another name. " + _BEGIN_ANEW,
        )
    if not slot.is_pgoutput_here or slot.confirmed_flush_lsn is None:
        raise ObjectNotInPrerequisiteState(
            f'replication slot "{name}" is not one of pgoutput in the database of the connection',
            hint="Name the right one with slot_name.",
        )
    if slot.active:
        raise ObjectInUse(
            f'replication slot "{name}" is active for PID {slot.active_pid} on the publisher',
            detail="Somebody reads from it, perhaps a launcher on the data directory that was "
            "taken for lost.",
            hint="Stop whoever reads from it; two subscribers must never write the same tables.",
        )
    if slot.invalidation is not None:
        raise ObjectNotInPrerequisiteState(
            f'replication slot "{name}" was invalidated',
            detail=f"The publisher gives {slot.invalidation} as the reason.",
            hint=_BEGIN_ANEW,
        )
    return slot.confirmed_flush_lsn


def check_position(identity: SystemIdentity, claims: Iterable[Claim]) -> None:
    """Raise 55000 if the publisher is behind a table's position."""
    highest = max([claim.position.lsn for claim in claims if claim.position], default=LSN(0))
    if identity.xlogpos < highest:
        raise ObjectNotInPrerequisiteState(
            "the publisher is behind what the lake tables hold",
            detail=f"It stands at {identity.xlogpos}; a table is at {highest}. It is another "
            "server, was restored from a backup, or a standby that lagged behind took over.",
            hint="Point the connection at the server the tables came from. " + _BEGIN_ANEW,
        )


def rebuilt_rel(subid: int, claim: Claim) -> SubscriptionRel:
    """The table's row: ``s`` at the position, or ``i``."""
    rel = new_rel(subid, claim.table, copy_data=True)
    position = claim.position
    if position is None:
        return dataclasses.replace(rel, recopy=claim.sync_of is not None)
    return dataclasses.replace(
        rel,
        srsubstate=SubRelState.SYNCDONE,
        srsublsn=position.lsn,
        epoch=position.epoch,
        floor=position.floor,
        lake_lsn=position.lsn,
    )


def unproven(claims: Iterable[Claim], confirmed: LSN) -> list[tuple[str, LSN]]:
    """The tables behind the confirmed position, with their positions."""
    return [
        (claim.table.name, claim.position.lsn)
        for claim in claims
        if claim.position is not None and claim.position.lsn < confirmed
    ]


# Actions


def rebuild(config: Config, context: CommandContext) -> list[Subscription]:
    """Rebuild every subscription missing in the catalog; 42710 if none is missing."""
    missing = [stmt for stmt in config.subscriptions if not _is_there(stmt.name, context)]
    if not missing:
        names = quoted(stmt.name for stmt in config.subscriptions)
        raise DuplicateObject(
            f"the catalog of this data directory holds every subscription of the file: {names}",
            hint="There is nothing to rebuild; pgsub up runs them.",
        )
    return [rebuild_subscription(stmt, context) for stmt in missing]


def _is_there(name: str, context: CommandContext) -> bool:
    sub = context.store.subscription_by_name(name)
    if sub is None:
        return False
    if sub.subcreate is not SubCreate.READY:
        raise ObjectNotInPrerequisiteState(
            f'subscription "{name}" is only half created or dropped in this data directory',
            hint=f"Run pgsub drop --leave-slot {name}, which keeps the slot, then rebuild.",
        )
    return True


def rebuild_subscription(stmt: CreateSubscriptionStmt, context: CommandContext) -> Subscription:
    """Rebuild a subscription: the row as CREATE would store it, the tables from the lake."""
    check_password(stmt, context.settings)
    sub = new_row(stmt)
    if sub.subslotname is None:
        raise ObjectNotInPrerequisiteState(
            f'subscription "{stmt.name}" has no replication slot to go on with',
            hint="Name it with slot_name.",
        )
    with (
        # The name of the permanent password file has the uuid, not known yet.
        temporary_passfile(stmt.connection.password) as passfile,
        closing(context.connect(dataclasses.replace(sub, passfile=passfile))) as conn,
    ):
        sub, claims = _gather(sub, conn, context)
        sync_slots = fetch_sync_slots(conn, system_identifier(sub))
    if stmt.connection.password is not None:
        written = write_passfile(context.data_dir, sub.subuuid, stmt.connection.password)
        sub = dataclasses.replace(sub, passfile=written)
    try:
        stored = _store(sub, claims, sync_slots, context)
    except BaseException:
        remove_passfile(sub.passfile)
        raise
    _report(stored, claims, context)
    if stored.subenabled:
        context.wake_launcher()
    return stored


def _gather(
    sub: Subscription, conn: ReplicationConn, context: CommandContext
) -> tuple[Subscription, list[Claim]]:
    """The row and the tables, after all checks and fences."""
    identity = conn.identify_system()
    name = sub.subslotname or ""
    confirmed = check_slot(sub, fetch_slot(conn, name))
    mapped = published_tables(conn, sub, context, validate=sub.subpublications)
    for table in mapped:
        if table.options.shared:
            raise FeatureNotSupported(
                f'table "{table.name}" has shared = true, which cannot be rebuilt',
                detail="Its lake table belongs to no one subscription: it does not say which this "
                "was.",
                hint=_BEGIN_ANEW,
            )
    claims = _claims(mapped, context.lake_tables([table.ident for table in mapped]))
    claims = list(_without_lost_messages(claims, context))
    mapped = [claim.table for claim in claims]
    owner = owner_of(sub.subname, claims)
    sub = dataclasses.replace(
        sub,
        subuuid=owner,
        subcreate=SubCreate.READY,
        **identity.stored(),
        max_flush_lsn=confirmed,
    )
    _check_owner_is_free(sub, context)
    raise_first(list(lake_findings(mapped, lambda _: [c.lake for c in claims], context.store, sub)))
    copied = [claim.table for claim in claims if claim.position is None]
    raise_first(list(privilege_findings(conn, copied)))
    for message in row_security_warnings(conn, published_names(copied)):
        context.notify(message)
    check_position(identity, claims)
    claims = _fenced(claims, context)
    owner_of(sub.subname, claims)
    # A worker may have committed until the fence: check again after the fences.
    check_position(conn.identify_system(), claims)
    return sub, claims


def _claims(mapped: Sequence[MappedTable], found: Sequence[LakeTable | None]) -> list[Claim]:
    return [Claim(table, lake) for table, lake in zip(mapped, found, strict=True)]


def _without_lost_messages(claims: Iterable[Claim], context: CommandContext) -> Iterator[Claim]:
    """Leave out the table of logical messages if the lake does not have the table."""
    for claim in claims:
        if claim.table.holds_messages and claim.position is None:
            context.notify(
                warning(
                    f'lake table "{claim.table.ident}" of logical messages does not exist',
                    detail="Logical messages are left out until the table exists.",
                    hint="pgsub up FILE makes the table.",
                )
            )
        else:
            yield claim


def _check_owner_is_free(sub: Subscription, context: CommandContext) -> None:
    for other in context.store.subscriptions():
        if other.subuuid == sub.subuuid:
            raise ObjectInUse(
                f'the lake tables of subscription "{sub.subname}" belong to subscription '
                f'"{other.subname}" of this data directory',
                hint="Map its tables to other names with to:, or leave it out of the file.",
            )


def _fenced(claims: Sequence[Claim], context: CommandContext) -> list[Claim]:
    """Fence the tables and drop the branches of earlier workers, which can publish no more.

    Returns the tables after the fences.
    """
    lake = context.lake()

    def fenced(claim: Claim) -> Claim:
        ident = claim.table.ident
        behind = lake.fence(ident)
        lake.drop_branches(ident, prefix=BRANCH_PREFIX)
        return dataclasses.replace(claim, lake=behind)

    with ThreadPoolExecutor(FENCE_AT_ONCE_TABLES, thread_name_prefix="lake") as pool:
        found = list(pool.map(lambda claim: fenced(claim) if claim.known else claim, claims))
    lake.make_durable([claim.table.ident for claim in found if claim.known])
    return found


def _store(
    sub: Subscription, claims: Sequence[Claim], sync_slots: Sequence[str], context: CommandContext
) -> Subscription:
    """Store row, origin, tables, and the slots of unfinished copies in one transaction."""
    store = context.store
    # In use again: no later command must drop the slot as leaked.
    slots = [slot for slot in store.leaked_slots() if slot.slot_name == sub.subslotname]
    found_again = [slot for slot in slots if slot.is_on(sub)]
    why = "it is of a table's copy that the lost catalog knew of"
    left = [leaked_slot(sub, name, why) for name in sync_slots]
    with store.transaction():
        stored = store.insert_subscription(sub)
        store.origin_create(origin_name(stored.oid))
        for claim in claims:
            store.insert_rel(rebuilt_rel(stored.oid, claim))
        for slot in found_again:
            store.forget_leaked_slot(slot)
        for slot in left:
            store.put_leaked_slot(slot)
    for slot in found_again:
        remove_passfile(slot.passfile)
    for slot in left:
        context.notify(leak_warning(slot))
    return stored


def _report(sub: Subscription, claims: Sequence[Claim], context: CommandContext) -> None:
    for claim in claims:
        position = claim.position
        text = "i: it is copied" if position is None else f"s at {position.lsn}"
        context.notify(
            notice(f'table "{claim.table.name}" of subscription "{sub.subname}": {text}')
        )
    behind = unproven(claims, sub.max_flush_lsn)
    if behind:
        context.notify(
            warning(
                f'tables of subscription "{sub.subname}" end before what was confirmed to the '
                f"publisher, {sub.max_flush_lsn}: "
                + ", ".join(f'"{name}" at {lsn}' for name, lsn in behind),
                detail="That is as it should be where no change was made to them in between. "
                "Nothing proves that none was.",
                hint="Compare them with the publisher if the lake was restored, or if a table was "
                f"being copied. pgsub refresh {shlex.quote(sub.subname)} --recopy TABLE copies one "
                "of them again.",
            )
        )
