"""Leaked slots: replication slots that a command could not drop on a publisher."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from catalog.errcodes import ReplicationError
from catalog.leaked_slot import LeakedSlot, leaked_slot
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import Subscription, sync_slot_name, system_identifier
from catalog.pg_subscription_rel import SubscriptionRel
from catalog.store_sqlite import CatalogStore
from config.limits import SLOT_RELEASE_POLL_SECONDS, SLOT_RELEASE_SECONDS
from subscriber.commands.context import CommandContext
from subscriber.launcher.passfile import remove_passfile
from subscriber.messages import Notice, notice, warning
from workers.publisher.interfaces import ReplicationConn
from workers.publisher.replication_slots import fetch_slot, is_in_recovery


def sync_slots_left(
    sub: Subscription, rels: Iterable[SubscriptionRel], store: CatalogStore
) -> list[str]:
    """The slots that unfinished synchronisations may have on the publisher.

    A temporary slot ends with its worker. A synchronisation with a permanent slot has an origin
    until the end, even if the subscription's setting has changed.
    """
    return [
        sync_slot_name(sub.oid, rel.srrelid, system_identifier(sub))
        for rel in rels
        if store.origin_by_name(origin_name(sub.oid, rel.srrelid)) is not None
    ]


def drop_sync_slots(
    sub: Subscription, names: Iterable[str], conn: ReplicationConn, context: CommandContext
) -> None:
    """Drop the slots of unfinished synchronisations, after their workers' end.

    On the server of the slots' creation a slot may be missing.
    """
    for name in names:
        slot = leaked_slot(sub, name, "the connection leads to another server or database")
        try:
            if not slot.is_on(_reached(sub, conn)):
                remember_leak(slot, context)
                continue
            if drop_when_released(conn, name):
                context.notify(notice(f'dropped replication slot "{name}" on publisher'))
        except ReplicationError as error:
            remember_leak(replace(slot, reason=error.primary), context)
        else:
            context.store.forget_leaked_slot_of_server(slot)


def leave_sync_slots(sub: Subscription, names: Iterable[str], context: CommandContext) -> None:
    """List possible slots as leaked, without a notice; the publisher is not asked."""
    for name in names:
        context.store.put_leaked_slot(leaked_slot(sub, name, "the publisher was not asked"))


def forget_leak(sub: Subscription, context: CommandContext) -> None:
    """Take the subscription's slot off the list: no command drops the slot any more."""
    for slot in context.store.leaked_slots():
        if slot.slot_name == sub.subslotname and slot.is_on(sub):
            _forget(slot, context)


def _forget(slot: LeakedSlot, context: CommandContext) -> None:
    """Take a slot off the list; remove the password file unless a subscription uses the file."""
    context.store.forget_leaked_slot(slot)
    if slot.passfile not in {sub.passfile for sub in context.store.subscriptions()}:
        remove_passfile(slot.passfile)


def leave_server(
    before: Subscription, now: Subscription, context: CommandContext
) -> list[LeakedSlot]:
    """Slots left on the old server; call in the transaction that stores the new server.

    Slots of synchronisations are listed as leaked: the list is the only record. The connection to
    the old server is forgotten already. The main slot is only in the result, for a warning: the
    user chose the name and may have altered the name since, and a slot of the name may belong to
    another subscriber. The new server's slot may have been listed when the subscription left that
    server, and is taken off the list.
    """
    store = context.store
    if before.sysid is None or leaked_slot(before, "", "").is_on(now):
        return []
    names = sync_slots_left(before, store.rels(before.oid), store)
    listed = [
        slot
        for slot in store.leaked_slots()
        if slot.subname == before.subname and slot.sysid and slot.is_on(before)
    ]
    known = {slot.slot_name for slot in listed}
    why = "the subscription goes on from another server or database"
    left = [
        replace(leaked_slot(before, name, why), conninfo="", passfile=None)
        for name in names
        if name not in known
    ]
    for slot in left:
        store.put_leaked_slot(slot)
    forget_leak(now, context)
    to_warn_of = [*left, *listed]
    if before.subslotname is not None and before.sysid != now.sysid:
        # Names of slots are unique on a server, over all databases.
        to_warn_of.insert(0, leaked_slot(before, before.subslotname, why))
    return to_warn_of


def warn_of_slots_left(
    slots: Iterable[LeakedSlot], before: Subscription, now: Subscription, context: CommandContext
) -> None:
    """A WARNING for every slot from ``leave_server``."""
    same = before.sysid == now.sysid
    place = "in the database" if same else "on the server"
    which = (
        f"The database's OID is {before.datoid}"
        if same
        else f"The server's system identifier is {before.sysid}"
    )
    for slot in slots:
        context.notify(
            warning(
                f'replication slot "{slot.slot_name}" may still be {place} that '
                f'subscription "{before.subname}" was made for',
                detail=f"{which}. A slot that is there holds back WAL until it is dropped.",
                hint=("" if slot.has_subscription_number else "If nobody else uses it: ")
                + f"Connect there and SELECT pg_drop_replication_slot('{slot.slot_name}').",
            )
        )


def retry_leaked_slots(sub: Subscription, conn: ReplicationConn, context: CommandContext) -> None:
    """Drop earlier leaked slots on the publisher of ``conn``, by any connection string.

    A slot with the name of a subscription's slot is never dropped, on any server: a slot in use is
    inactive while its worker starts. A missing slot counts as gone only by the connection string of
    the leak. If the string is forgotten, the server must not be a standby: a standby has the
    primary's system identifier but different slots.
    """
    store, leaked = context.store, context.store.leaked_slots()
    if not leaked:
        return
    used = {sub.subslotname}
    for other in store.subscriptions():
        used |= {other.subslotname, *sync_slots_left(other, store.rels(other.oid), store)}
    with suppress(ReplicationError):
        here = _reached(sub, conn)
        for slot in leaked:
            if (
                slot.slot_name not in used
                and slot.is_dropped_through(here)
                and _drop_leaked(slot, here, conn)
            ):
                _forget(slot, context)


def _drop_leaked(slot: LeakedSlot, here: Subscription, conn: ReplicationConn) -> bool:
    """Drop an unused slot; True if the slot is gone."""
    try:
        found = fetch_slot(conn, slot.slot_name)
        if found is None:
            return slot.conninfo == here.subconninfo or not (slot.conninfo or is_in_recovery(conn))
        if found.active or not found.is_pgoutput_here:
            return False
        conn.drop_slot(slot.slot_name, wait=False, missing_ok=True)
    except ReplicationError:
        return False
    return True


def _reached(sub: Subscription, conn: ReplicationConn) -> Subscription:
    """The row with the publisher identity of ``conn``."""
    return replace(sub, **conn.identify_system().stored())


def drop_when_released(conn: ReplicationConn, name: str) -> bool:
    """Drop the slot after its walsender's end; False without a slot."""
    deadline = time.monotonic() + SLOT_RELEASE_SECONDS
    while True:
        slot = fetch_slot(conn, name)
        if slot is None:
            return False
        if not slot.active or time.monotonic() > deadline:
            # Still active: the publisher's error names the process.
            conn.drop_slot(name, wait=False)
            return True
        time.sleep(SLOT_RELEASE_POLL_SECONDS)


def remember_leak(slot: LeakedSlot, context: CommandContext) -> None:
    """List a slot as leaked, with a warning."""
    context.store.put_leaked_slot(slot)
    context.notify(leak_warning(slot))


def leak_warning(slot: LeakedSlot) -> Notice:
    """A WARNING about a slot that stays, with the remedy."""
    return warning(
        slot.stays,
        detail="It holds back WAL there until it is dropped.",
        hint=f"On the publisher: SELECT pg_drop_replication_slot('{slot.slot_name}').",
    )
