"""Slots that a command had to leave behind on a publisher."""

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

    A temporary one is gone with its worker. A synchronisation that began with a permanent one has
    an origin until it is done, whatever the subscription says by now.
    """
    return [
        sync_slot_name(sub.oid, rel.srrelid, system_identifier(sub))
        for rel in rels
        if store.origin_by_name(origin_name(sub.oid, rel.srrelid)) is not None
    ]


def drop_sync_slots(
    sub: Subscription, names: Iterable[str], conn: ReplicationConn, context: CommandContext
) -> None:
    """Drop what unfinished synchronisations left; their workers are gone.

    Missing is fine, on the server where they were made.
    """
    for name in names:
        slot = leaked_slot(sub, name, "the connection leads to another server or database")
        try:
            if not slot.is_on(_reached(sub, conn)):
                _remember(slot, context)
                continue
            if _drop_when_released(conn, name):
                context.notify(notice(f'dropped replication slot "{name}" on publisher'))
        except ReplicationError as error:
            _remember(replace(slot, reason=error.primary), context)
        else:
            context.store.forget_leaked_slot_of_server(slot)


def leave_sync_slots(sub: Subscription, names: Iterable[str], context: CommandContext) -> None:
    """The publisher is not asked: what may be there is listed, without a word."""
    for name in names:
        context.store.put_leaked_slot(leaked_slot(sub, name, "the publisher was not asked"))


def forget_leak(sub: Subscription, context: CommandContext) -> None:
    """The subscription has taken its slot: nobody drops that as a leaked one any more."""
    for slot in context.store.leaked_slots():
        if slot.slot_name == sub.subslotname and slot.is_on(sub):
            _forget(slot, context)


def _forget(slot: LeakedSlot, context: CommandContext) -> None:
    """It is no leaked one any more; its password file stays if a subscription connects with it."""
    context.store.forget_leaked_slot(slot)
    if slot.passfile not in {sub.passfile for sub in context.store.subscriptions()}:
        remove_passfile(slot.passfile)


def leave_server(
    before: Subscription, now: Subscription, context: CommandContext
) -> list[LeakedSlot]:
    """What stays where the subscription was; in the transaction that stores where it goes on.

    Slots of synchronisations are listed from here on: nobody else knows of them. The connection
    that led there is forgotten already. The main slot is only told of: its name is the user's and
    may have been altered since, so that one of this name there may be somebody else's. A slot that
    the subscription goes on with was perhaps left when it went from there.
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
    told = [*left, *listed]
    if before.subslotname is not None and before.sysid != now.sysid:
        # A server has one slot of a name, in whatever database.
        told.insert(0, leaked_slot(before, before.subslotname, why))
    return told


def tell_of_slots_left(
    slots: Iterable[LeakedSlot], before: Subscription, now: Subscription, context: CommandContext
) -> None:
    """A WARNING for each that ``leave_server`` found."""
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
                hint=("" if slot.has_own_number else "If nobody else uses it: ")
                + f"Connect there and SELECT pg_drop_replication_slot('{slot.slot_name}').",
            )
        )


def retry_leaked_slots(sub: Subscription, conn: ReplicationConn, context: CommandContext) -> None:
    """Drop what was leaked earlier on the publisher that ``conn`` talks to, whatever it is called.

    Never one whose name a subscription has, on whatever server: a slot that was made use of again
    is inactive while its worker starts. One that is missing is believed to be gone only in the
    words it was left by, or where those are forgotten on a server that is no standby: a standby has
    its primary's system identifier and slots of its own.
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
    """Drop a slot that nobody uses; whether it is gone."""
    try:
        found = fetch_slot(conn, slot.slot_name)
        if found is None:
            return slot.conninfo == here.subconninfo or not (slot.conninfo or is_in_recovery(conn))
        if found.active or not found.ours:
            return False
        conn.drop_slot(slot.slot_name, wait=False, missing_ok=True)
    except ReplicationError:
        return False
    return True


def _reached(sub: Subscription, conn: ReplicationConn) -> Subscription:
    """The row as it would be if its publisher were the one that ``conn`` talks to."""
    return replace(sub, **conn.identify_system().stored())


def _drop_when_released(conn: ReplicationConn, name: str) -> bool:
    """Drop the slot once no walsender holds it any more; False if there is none."""
    deadline = time.monotonic() + SLOT_RELEASE_SECONDS
    while True:
        slot = fetch_slot(conn, name)
        if slot is None:
            return False
        if not slot.active or time.monotonic() > deadline:
            # Still active: the publisher's error says which process holds it.
            conn.drop_slot(name, wait=False)
            return True
        time.sleep(SLOT_RELEASE_POLL_SECONDS)


def _remember(slot: LeakedSlot, context: CommandContext) -> None:
    context.store.put_leaked_slot(slot)
    context.notify(leak_warning(slot))


def leak_warning(slot: LeakedSlot) -> Notice:
    """What there is to do about a slot that stays."""
    return warning(
        slot.stays,
        detail="It holds back WAL there until it is dropped.",
        hint=f"On the publisher: SELECT pg_drop_replication_slot('{slot.slot_name}').",
    )
