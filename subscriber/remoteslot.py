"""Replication slots on the publisher: made at CREATE, altered, released at DROP, or leaked.

A leaked slot is one that DROP could not remove. It holds back WAL on the publisher, so it stays
listed (``pgsub status leaked_slots``) until it is gone; every later command that talks to the same
publisher tries again. Which publisher that is says its system identifier and the database, not the
connection string, which may be put in other words or lead to another server by now.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from typing import Final

from catalog import remedies
from catalog.errcodes import (
    ConnectionFailure,
    DuplicateObject,
    FeatureNotSupported,
    ObjectInUse,
    ReplicationError,
    error_context,
)
from catalog.leaked_slot import LeakedSlot, leaked_slot
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import (
    SubCreate,
    Subscription,
    sync_slot_name,
    system_identifier,
)
from catalog.pg_subscription_rel import SubscriptionRel
from catalog.store_sqlite import CatalogStore
from config.guc import stored_settings
from subscriber.passfile import remove_passfile
from subscriber.report import Notice, notice, warning
from subscriber.site import Publisher, Site
from workers import failpoints
from workers.alter_slot import alter_slot
from workers.remote_slots import fetch_slot, is_in_recovery

SLOT_RELEASE_TIMEOUT: Final = 10.0
"""Seconds DROP waits for the publisher to notice that a slot's reader is gone."""

FAILOVER_SINCE: Final = 17
TWO_PHASE_SINCE: Final = 18
"""The version from which a publisher can alter the property of a slot that is there."""

_POLL: Final = 0.1
_UNKNOWN_OUTCOME: Final = ("08", "57")
"""SQLSTATE classes of errors that say nothing about what the publisher did."""


def check_slot_is_free(conn: Publisher, sub: Subscription) -> None:
    """The slot that CREATE is going to make must not be there (42710)."""
    if not sub.create_slot or sub.subslotname is None:
        return
    if fetch_slot(conn, sub.subslotname) is not None:
        raise DuplicateObject(
            f'replication slot "{sub.subslotname}" already exists',
            hint="Name another one with slot_name, use it with create_slot = false, or drop it on "
            "the publisher with pg_drop_replication_slot(). If the data directory it was made for "
            "is lost, pgsub rebuild goes on with it.",
        )


def slot_warnings(conn: Publisher, sub: Subscription) -> Iterator[Notice]:
    """What the apply worker will not like about a slot that was to be there already."""
    name = sub.subslotname
    if sub.create_slot or name is None:
        return
    slot = fetch_slot(conn, name)
    if slot is None:
        yield warning(
            f'replication slot "{name}" does not exist on the publisher',
            detail="The subscription's worker fails until it is there.",
            hint=f"On the publisher: SELECT pg_create_logical_replication_slot('{name}', "
            "'pgoutput').",
        )
    elif not slot.ours:
        yield warning(
            f'replication slot "{name}" is not one of pgoutput in the database of the connection',
            detail="The subscription's worker cannot read from it.",
            hint="Name another one with slot_name.",
        )
    elif slot.active:
        yield warning(
            f'replication slot "{name}" is active for PID {slot.active_pid} on the publisher',
            detail="The subscription's worker fails until it is not.",
            hint="Stop whoever reads from it, or name another one with slot_name.",
        )


def make_slot(sub: Subscription, conn: Publisher, site: Site) -> LSN:
    """Make the slot, or look at the one that was made before; where its changes begin.

    0/0 where there is none. Raises the publisher's own error: wal_level, limits, privileges.
    """
    if sub.subslotname is None:
        return InvalidXLogRecPtr
    if not sub.create_slot:
        slot = fetch_slot(conn, sub.subslotname)
        return (slot and slot.confirmed_flush_lsn) or InvalidXLogRecPtr
    return create_main_slot(sub.subslotname, sub, conn, site)


def renew_slot(sub: Subscription, conn: Publisher, site: Site) -> LSN:
    """Drop what is left of the subscription's slot and make it anew; where its changes begin.

    Whoever calls this copies every table again.
    """
    name = sub.subslotname
    if name is None:
        return InvalidXLogRecPtr
    with error_context(f'dropping replication slot "{name}" on the publisher'):
        if _drop_when_released(conn, name):
            site.notify(notice(f'dropped replication slot "{name}" on publisher'))
    failpoints.reach("recopy.slot_dropped")
    return create_main_slot(name, sub, conn, site)


def create_main_slot(name: str, sub: Subscription, conn: Publisher, site: Site) -> LSN:
    """Make the slot now; the consistent point. On a standby it is given up after a while."""
    timeout = stored_settings(site.store.settings()).create_slot_timeout
    limit = timeout if timeout and is_in_recovery(conn) else None
    with error_context(f'creating replication slot "{name}" on the publisher'):
        try:
            point = conn.create_slot(
                name,
                temporary=False,
                snapshot="nothing",
                failover=sub.subfailover,
                timeout=limit,
            )
        except ReplicationError as error:
            raise remedies.making_slot(error) from None
    site.notify(notice(f'created replication slot "{name}" on publisher'))
    return point


def may_have_made_slot(error: BaseException) -> bool:
    """Whether the slot may be there although ``make_slot`` failed with this error."""
    return not isinstance(error, ReplicationError) or error.code.startswith(_UNKNOWN_OUTCOME)


def drop_unused_slot(sub: Subscription, conn: Publisher, site: Site) -> None:
    """Drop the slot of a *creating* row, if it is one that CREATE may have made.

    On a new connection if ``conn`` is lost: that may be why it was not created.
    """
    if not sub.create_slot or sub.subslotname is None:
        return
    try:
        _drop_made_slot(sub.subslotname, conn)
    except ReplicationError as error:
        if not error.code.startswith(_UNKNOWN_OUTCOME):
            raise
        with closing(site.connect(sub)) as fresh:
            _drop_made_slot(sub.subslotname, fresh)


def _drop_made_slot(name: str, conn: Publisher) -> None:
    slot = fetch_slot(conn, name)
    if slot is None or not slot.ours:
        return
    if slot.active:
        # A walsender that does not know yet that its client is gone may still be making it.
        raise ObjectInUse(f'replication slot "{name}" is active for PID {slot.active_pid}')
    conn.drop_slot(name, wait=False, missing_ok=True)


def connect_to_drop(sub: Subscription, site: Site) -> Publisher | None:
    """A connection for DROP; None where nothing is to be dropped on the publisher.

    08006 where it cannot be had, or where the slot is missing that a DROP has not yet begun with.
    Without a slot name only slots of synchronisations are in question: they are given up silently.
    """
    left = sync_slots_left(sub, site.store.rels(sub.oid), site.store)
    if sub.subslotname is None and not left:
        return None
    try:
        conn = site.connect(sub)
    except ReplicationError as error:
        if sub.subslotname is None:
            return None
        for name in left:
            site.notify(warning(f'could not drop tablesync replication slot "{name}"'))
        raise ConnectionFailure(
            "could not connect to publisher when attempting to drop replication slot "
            f'"{sub.subslotname}": {error.primary}',
            detail=error.detail,
            hint=_without_slot(sub),
        ) from None
    try:
        _check_slot_is_there(sub, conn)
    except BaseException:
        conn.close()
        raise
    return conn


def _check_slot_is_there(sub: Subscription, conn: Publisher) -> None:
    if sub.subcreate is not SubCreate.READY or sub.subslotname is None:
        return
    if fetch_slot(conn, sub.subslotname) is None:
        name = sub.subslotname
        raise ConnectionFailure(
            f'could not drop replication slot "{name}" on publisher: replication slot "{name}" '
            "does not exist",
            hint=_without_slot(sub),
        )


def _without_slot(sub: Subscription) -> str:
    name = shlex.quote(sub.subname)
    return (
        "Use ALTER SUBSCRIPTION ... DISABLE to disable the subscription, and then use ALTER "
        "SUBSCRIPTION ... SET (slot_name = NONE) to disassociate it from the slot; or pgsub drop "
        f"--leave-slot {name}, which goes on listing the slot. One that is there holds back WAL on "
        "the publisher until it is dropped."
    )


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


def drop_sync_slots(sub: Subscription, names: Iterable[str], conn: Publisher, site: Site) -> None:
    """Drop what unfinished synchronisations left; their workers are gone.

    Missing is fine, on the server where they were made.
    """
    for name in names:
        slot = leaked_slot(sub, name, "the connection leads to another server or database")
        try:
            if not slot.is_on(_reached(sub, conn)):
                _remember(slot, site)
                continue
            if _drop_when_released(conn, name):
                site.notify(notice(f'dropped replication slot "{name}" on publisher'))
        except ReplicationError as error:
            _remember(replace(slot, reason=error.primary), site)
        else:
            site.store.forget_leaked_slot(slot)


def leave_sync_slots(sub: Subscription, names: Iterable[str], site: Site) -> None:
    """The publisher is not asked: what may be there is listed, without a word."""
    for name in names:
        site.store.put_leaked_slot(leaked_slot(sub, name, "the publisher was not asked"))


def alter_main_slot(
    sub: Subscription,
    conn: Publisher,
    *,
    failover: bool | None,
    two_phase: bool | None,
) -> None:
    """Give the subscription's slot the properties that are given, once no walsender holds it.

    A publisher that cannot alter a property of a slot (0A000) has none to turn off.
    """
    name, version = sub.subslotname, conn.server_version
    failover = _if_known(failover, "failover", FAILOVER_SINCE, version)
    two_phase = _if_known(two_phase, "two_phase", TWO_PHASE_SINCE, version)
    if name is None or (failover is None and two_phase is None):
        return
    deadline = time.monotonic() + SLOT_RELEASE_TIMEOUT
    while (slot := fetch_slot(conn, name)) is not None and slot.active:
        if time.monotonic() > deadline:
            # The publisher would wait, for as long as somebody reads from it.
            raise ConnectionFailure(
                f'could not alter replication slot "{name}" on publisher: replication slot '
                f'"{name}" is active for PID {slot.active_pid}',
                hint="Stop whoever reads from it, then try again.",
            )
        time.sleep(_POLL)
    alter_slot(conn, name, failover=failover, two_phase=two_phase)


def _if_known(value: bool | None, option: str, since: int, version: int) -> bool | None:
    if version >= since or not value:
        return value if version >= since else None
    raise FeatureNotSupported(
        f"{option} of a replication slot cannot be altered on a publisher of version {version}",
        hint=f"It takes version {since} or later.",
    )


def forget_leak(sub: Subscription, site: Site) -> None:
    """The subscription has taken its slot: nobody drops that as a leaked one any more."""
    for slot in site.store.leaked_slots():
        if slot.slot_name == sub.subslotname and slot.is_on(sub):
            _forget(slot, site)


def _forget(slot: LeakedSlot, site: Site) -> None:
    """It is no leaked one any more; its password file stays if a subscription connects with it."""
    site.store.forget_leaked_slot(slot)
    if slot.passfile not in {sub.passfile for sub in site.store.subscriptions()}:
        remove_passfile(slot.passfile)


def leave_server(before: Subscription, now: Subscription, site: Site) -> list[LeakedSlot]:
    """What stays where the subscription was; in the transaction that stores where it goes on.

    All of it is listed from here on: nobody else knows of it. The connection that led there is
    forgotten already. A slot that it goes on with was perhaps left when it went from there.
    """
    store = site.store
    if before.sysid is None or leaked_slot(before, "", "").is_on(now):
        return []
    names = sync_slots_left(before, store.rels(before.oid), store)
    if before.subslotname is not None and before.sysid != now.sysid:
        names.insert(0, before.subslotname)  # a server has one slot of a name, in whatever database
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
    forget_leak(now, site)
    return [*left, *listed]


def tell_of_slots_left(
    slots: Iterable[LeakedSlot], before: Subscription, now: Subscription, site: Site
) -> None:
    """A WARNING for each that ``leave_server`` found."""
    same = before.sysid == now.sysid
    place = "in the database" if same else "on the server"
    which = f"OID is {before.datoid}" if same else f"system identifier is {before.sysid}"
    for slot in slots:
        site.notify(
            warning(
                f'replication slot "{slot.slot_name}" may still be {place} that '
                f'subscription "{before.subname}" was made for',
                detail=f"Its {which}. A slot that is there holds back WAL until it is dropped.",
                hint=f"There: SELECT pg_drop_replication_slot('{slot.slot_name}').",
            )
        )


def release_slot(sub: Subscription, conn: Publisher | None, site: Site) -> bool:
    """DROP's part on the publisher: True if the slot stays there and was remembered as leaked.

    One that is missing is fine here: an earlier DROP may have died after dropping it.
    """
    name = sub.subslotname
    if name is None:
        return False
    if conn is None:
        _remember(leaked_slot(sub, name, "it was left on purpose"), site)
        return True
    try:
        if _drop_when_released(conn, name):
            site.notify(notice(f'dropped replication slot "{name}" on publisher'))
        else:
            site.notify(notice(f'replication slot "{name}" does not exist on publisher, skipping'))
    except ReplicationError as error:
        _remember(leaked_slot(sub, name, error.primary), site)
        return True
    return False


def retry_leaked_slots(sub: Subscription, conn: Publisher, site: Site) -> None:
    """Drop what was leaked earlier on the publisher that ``conn`` talks to, whatever it is called.

    Never one whose name a subscription has, on whatever server: a slot that was made use of again
    is inactive while its worker starts. One that is missing is believed to be gone only in the
    words it was left by: in others this may be a standby of that server, with slots of its own.
    """
    store, leaked = site.store, site.store.leaked_slots()
    if not leaked:
        return
    used = {sub.subslotname}
    for other in store.subscriptions():
        used |= {other.subslotname, *sync_slots_left(other, store.rels(other.oid), store)}
    with suppress(ReplicationError):
        here = _reached(sub, conn)
        for slot in leaked:
            if slot.slot_name not in used and slot.is_on(here) and _drop_leaked(slot, here, conn):
                _forget(slot, site)


def _drop_leaked(slot: LeakedSlot, here: Subscription, conn: Publisher) -> bool:
    """Drop a slot that nobody uses; whether it is gone."""
    try:
        found = fetch_slot(conn, slot.slot_name)
        if found is None:
            return slot.conninfo in ("", here.subconninfo)
        if found.active or not found.ours:
            return False
        conn.drop_slot(slot.slot_name, wait=False, missing_ok=True)
    except ReplicationError:
        return False
    return True


def _reached(sub: Subscription, conn: Publisher) -> Subscription:
    """The row as it would be if its publisher were the one that ``conn`` talks to."""
    return replace(sub, **conn.identify_system().stored())


def _drop_when_released(conn: Publisher, name: str) -> bool:
    """Drop the slot once no walsender holds it any more; False if there is none."""
    deadline = time.monotonic() + SLOT_RELEASE_TIMEOUT
    while True:
        slot = fetch_slot(conn, name)
        if slot is None:
            return False
        if not slot.active or time.monotonic() > deadline:
            # Still active: the publisher's error says which process holds it.
            conn.drop_slot(name, wait=False)
            return True
        time.sleep(_POLL)


def _remember(slot: LeakedSlot, site: Site) -> None:
    site.store.put_leaked_slot(slot)
    site.notify(leak_warning(slot))


def leak_warning(slot: LeakedSlot) -> Notice:
    """What there is to do about a slot that stays."""
    return warning(
        slot.stays,
        detail="It holds back WAL there until it is dropped.",
        hint=f"On the publisher: SELECT pg_drop_replication_slot('{slot.slot_name}').",
    )
